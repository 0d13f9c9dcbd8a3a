// What is wrong with a page that is drawn, a text for each: the value of this file is their list.
(() => {
  const all = (names) => [...document.querySelectorAll(names)];

  // What leaves the page at the right, or its picture at any side; parts that scroll keep theirs.
  const leaving = all("body *").flatMap((it) => {
    if (it.closest(".skip, defs, pattern, title, details:not([open]) > :not(summary)")) return [];
    const box = it.getBoundingClientRect(), svg = it.ownerSVGElement;
    const around = svg ? svg.getBoundingClientRect()
      : { left: 0, right: document.documentElement.clientWidth };
    if (!box.width || box.left >= around.left - 1 && box.right <= around.right + 1) return [];
    return [`${it.tagName} ${it.className.baseVal ?? it.className} ${it.textContent.slice(0, 40)}: `
            + `${Math.round(box.left)} to ${Math.round(box.right)}`];
  });

  // The texts whose contrast with what is behind them is below what WCAG 2.2 asks for (AA).
  const faint = (() => {
    const parts = (color) => color.match(/[\d.]+/g).map(Number);
    const over = (top, below, opacity = 1) => {
      const [r, g, b, a = 1] = parts(top);
      return [r, g, b].map((part, at) => part * a * opacity + below[at] * (1 - a * opacity));
    };
    const light = (color) => color.map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behindElement = (it) => it
      ? over(getComputedStyle(it).backgroundColor, behindElement(it.parentElement))
      : [255, 255, 255];
    const behind = (it) => {
      if (!it.closest(".bar, .on")) return behindElement(it);
      const shape = it.closest(".bar") ? it.parentElement.firstElementChild
        : it.previousElementSibling;
      const { fill, fillOpacity } = getComputedStyle(shape);
      const pattern = fill.match(/#([^"]+)/);
      const color = pattern
        ? getComputedStyle(document.getElementById(pattern[1]).firstElementChild).fill : fill;
      return over(color, behindElement(it.ownerSVGElement), Number(fillOpacity));
    };
    const found = new Map();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const it = walk.currentNode.parentElement;
      if (!walk.currentNode.data.trim() || !it.getClientRects().length) continue;
      if (it.closest("script, title, .skip, noscript")) continue;
      const below = behind(it), style = getComputedStyle(it);
      const [one, two] = [over(it.ownerSVGElement ? style.fill : style.color, below), below]
        .map(light).sort((a, b) => b - a);
      const contrast = (one + 0.05) / (two + 0.05), name = it.className.baseVal ?? it.className;
      if (contrast < 4.5) found.set(`${it.tagName}.${name}`, contrast);
    }
    return [...found].map(([name, contrast]) => `${name} ${contrast.toFixed(2)}`);
  })();

  // The pictures that are not as large as they were drawn, so that their text is not either.
  const scaled = all("svg").filter((svg) => svg.getClientRects().length
    && Math.abs(svg.getBoundingClientRect().width - svg.getAttribute("width")) > 1).length;

  // The tables that are cut: one would have to move them to see their columns.
  const cut = all(".scroll, .few").filter((it) =>
    it.scrollWidth > it.clientWidth + 1).map((it) => it.getAttribute("aria-label"));

  // The lines of lists whose name and figures stand one upon the other.
  const covered = all(".legend li").filter((it) => {
    const [name, value] = [".name > :last-child", ".value"].map((each) => it.querySelector(each));
    if (!name || !value) return false;
    const [one, two] = [name, value].map((each) => each.getBoundingClientRect());
    return one.right > two.left + 1 && one.bottom > two.top + 1 && two.bottom > one.top + 1;
  }).map((it) => it.textContent);

  const beyond = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return [
    ...leaving.map((it) => `leaves its place: ${it}`),
    ...faint.map((it) => `faint: ${it}`),
    ...cut.map((it) => `a table that is cut: ${it}`),
    ...covered.map((it) => `covered: ${it}`),
    ...(scaled ? [`${scaled} pictures have another size than they were drawn for`] : []),
    ...(beyond > 0 ? [`the page is ${beyond} pixels wider than its window`] : []),
  ];
})()
