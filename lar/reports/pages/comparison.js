// The comparison of two or more sides: tables of tensors, and their errors over the depth.

const POINTS = { fault: [COLORS[5], 6], differs: [COLORS[1], 3.5], "": [COLORS[0], 3.5] };

// A line of dots for each curve; equal tensors stand at the bottom, those with an error that is no
// number at the top.
function drawCurves(curves, width) {
  const all = curves.flatMap(({ points }) => points);
  const deepest = Math.max(1, ...all.map(([depth]) => depth));
  const errors = all.map(([, error]) => error).filter((error) => error);
  const least = 10 ** (Math.floor(Math.log10(Math.min(1, ...errors))) - 1);  // where equal ones are
  const most = 10 ** Math.ceil(Math.log10(Math.max(least * 100, ...errors)) + 0.01);
  const names = curves.map(({ name }) => name).filter((name) => name).join(", ");
  const isNarrow = width < NARROW || !names;
  const { svg, atX, atY, right } = makeFrame(width, 340, `error over depth ${names}`,
    { from: -deepest * 0.02, to: deepest * 1.02, label: "operators before it", whole: true },
    { from: least, to: most, label: "relative error", log: true,
      format: (tick) => tick < least * 2 ? "equal" : tick.toExponential(0) }, isNarrow ? 12 : 90);
  curves.forEach(({ name, points }, number) => {
    const drawn = [COLORS[number % COLORS.length], number ? 3.5 : 5.5];  // to be seen behind others
    for (const [depth, error, tensor, mark] of points) {
      const shown = Math.min(Math.max(error ?? most, least), most);
      const [color, radius] = mark === undefined ? drawn : POINTS[mark];
      const said = `${tensor}: ${error === null ? "not a number" : formatAny(error)}`;
      svg.append(
        makeShape("circle", { cx: atX(depth), cy: atY(shown), r: radius, fill: color },
          makeShape("title", {}, name ? `${name}, ${said}` : said)));
    }
    if (!name) return;
    const [x, y] = isNarrow ? [110 + 80 * number, 10] : [right + 14, 24 + 18 * number];
    svg.append(makeShape("circle", { cx: x, cy: y, r: 4, fill: drawn[0] }),
               makeShape("text", { x: x + 10, y: y + 4 }, name));
  });
  return svg;
}

for (const { section, table, curves } of figures.parts)
  drawSection(section, () => [curves
    ? makeFitted((width) => drawCurves(curves, width))
    : makeTable(table, "tensors")]);
finishPage();
