// Plots: axes, curves, bars, pies, the roofline, lanes. Each is drawn for a width.

function ticksOf(least, most, count) {
  const raw = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= raw * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(least / step - 1e-9) * step; tick <= most + step * 1e-9; tick += step)
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  return ticks;
}

// A number on an axis, with as many digits as the distance between two numbers needs.
function formatNext(value, step) {
  return formatNumber(value, Math.max(0, Math.ceil(-Math.log10(step || 1) - 1e-9)));
}

function decadesOf(least, most) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(least)); 10 ** power <= most * 1.001; power++)
    if (10 ** power >= least * 0.999) ticks.push(10 ** power);
  return ticks;
}

// 1, 2 and 5 of each decade, for axes of few decades.
function partsOf(least, most) {
  return decadesOf(least / 10, most).flatMap((power) => [power, 2 * power, 5 * power])
    .filter((each) => each >= least * 0.999 && each <= most * 1.001);
}

const BOTTOM = 46;

// A frame with axes: `x` and `y` are {from, to, label, log, format}, `beside` is left free at the
// right. Returns the picture, its edges and its scales. `x` may have its own scale `at`.
function makeFrame(width, height, label, x, y, beside = 24) {
  const svg = makePicture(width, height, label);
  const isNarrow = width < NARROW;
  const top = isNarrow ? 26 : 14, right = width - beside, bottom = height - BOTTOM;
  const scale = (axis, start, end) => {
    const map = axis.log ? Math.log10 : (value) => value;
    const [from, to] = [map(axis.from), map(axis.to)];
    return (value) => start + ((map(value) - from) / (to - from || 1)) * (end - start);
  };
  const ticksFor = (axis, count) =>
    axis.log ? decadesOf(axis.from, axis.to) : ticksOf(axis.from, axis.to, count);
  const formatFor = (axis) => axis.format || (axis.log ? (value) => formatNumber(value) : formatNext);
  const yTicks = ticksFor(y, 5);
  const yTexts = yTicks.map((tick) => formatFor(y)(tick, yTicks[1] - yTicks[0]));
  const longest = Math.max(...yTexts.map((text) => text.length));
  const left = Math.max(isNarrow ? 52 : 76, 7 * longest + (isNarrow ? 14 : 38));
  const atX = scale(x, left + (x.folded || 0), right), atY = scale(y, bottom, top);
  yTicks.forEach((tick, place) =>
    svg.append(
      makeShape("line", { x1: left, x2: right, y1: atY(tick), y2: atY(tick),
                          stroke: "var(--grid)" }),
      makeShape("text", { x: left - 8, y: atY(tick) + 4, "text-anchor": "end" },
                yTexts[place])));
  let ticks = ticksFor(x, Math.max(2, Math.round((right - left) / 110)));
  const most = Math.max(2, Math.floor((right - left) / 55));
  if (ticks.length > most)
    ticks = ticks.filter((_, place) => place % Math.ceil(ticks.length / most) === 0);
  if (x.whole) ticks = ticks.filter(Number.isInteger);
  const step = x.whole ? 1 : ticks[1] - ticks[0];
  for (const tick of ticks) {
    svg.append(
      makeShape("line", { x1: atX(tick), x2: atX(tick), y1: bottom, y2: bottom + 5,
                          stroke: "var(--axis)" }),
      makeShape("text", { x: atX(tick), y: bottom + 19, "text-anchor": "middle" },
                formatFor(x)(tick, step)));
  }
  const middle = (top + bottom) / 2;
  svg.append(
    makeShape("line", { x1: left, x2: right, y1: bottom, y2: bottom, stroke: "var(--axis)" }),
    makeShape("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, x.label),
    isNarrow ? makeShape("text", { x: 4, y: 13 }, y.label)
      : makeShape("text", { x: 0, y: 0, "text-anchor": "middle",
                            transform: `translate(16 ${middle}) rotate(-90)` }, y.label));
  return { svg, atX, atY, left, right, top, bottom };
}

// The range of an axis: from 0, unless all values are close together and far from 0.
function rangeOf(values, fromZero) {
  const most = Math.max(...values), least = Math.min(...values);
  if (fromZero || least < most / 2 || least < 0) return { from: Math.min(0, least), to: Math.max(most * 1.05, 0) || 1 };
  const margin = (most - least) * 0.15 || most * 0.05 || 1;
  return { from: least - margin, to: most + margin };
}



// A curve. The warm-up, before `curve.folded`, is folded into a stripe at the left.
function drawCurve(curve, width) {
  const isFolded = curve.folded !== null;
  const folded = curve.points.filter(([x]) => isFolded && x < curve.folded);
  const rest = curve.points.slice(folded.length);
  const xs = (rest.length ? rest : curve.points).map((point) => point[0]);
  const ys = curve.points.map((point) => point[1]);
  const from = isFolded && rest.length ? curve.folded : Math.min(...xs);
  const to = Math.max(...xs);
  const greatest = Math.max(...ys);
  const stripe = folded.length && rest.length ? (width < NARROW ? 40 : Math.max(70, width * 0.06)) : 0;
  const { svg, atX, atY, left, right, top, bottom } = makeFrame(width, 220,
    `${curve.title}: at most ${formatNumber(greatest)} ${curve.y}`,
    { from, to: to > from ? to : from + 1, label: curve.x, folded: stripe },
    { ...rangeOf(ys, curve.step), label: curve.y });
  const began = Math.min(...curve.points.map(([x]) => x));
  const place = (x) => !stripe || x >= from ? atX(x)
    : left + (stripe - 6) * (x - began) / (from - began || 1);
  if (stripe) {
    svg.append(
      makeShape("rect", { x: left, y: top, width: stripe - 6, height: bottom - top,
                          fill: "var(--folded)" },
        makeShape("title", {}, `the warm-up, ${formatTime((from - began) * 1e9)}, folded`)),
      makeShape("text", { x: left + 3, y: top + 12, class: "halo" },
                stripe > 60 ? "warm-up" : "warm…"),
      makeShape("path", { d: `M${left + stripe - 6} ${top}V${bottom}M${left + stripe} ${top}V${bottom}`,
                          stroke: "var(--axis)", "stroke-dasharray": "2 3", fill: "none" }));
  }
  const path = curve.points.map(([x, y], index) => {
    if (!index) return `M${place(x)} ${atY(y)}`;
    return curve.step ? `H${place(x)}V${atY(y)}` : `L${place(x)} ${atY(y)}`;
  }).join("");
  svg.append(makeShape("path", { d: path, fill: "none", stroke: COLORS[0], "stroke-width": 1.5 }));
  if (curve.points.length < 80)
    for (const [x, y, name] of curve.points)
      svg.append(makeShape("circle", { cx: place(x), cy: atY(y), r: 2.5, fill: COLORS[0] },
        makeShape("title", {}, `${name ?? formatNumber(x)}: ${formatNumber(y)} ${curve.y}`)));
  if (curve.peak) {
    const x = place(curve.peak.at), y = atY(curve.peak.total), isLeft = x < (left + right) / 2;
    svg.append(
      makeShape("line", { x1: x, x2: x, y1: y, y2: bottom, stroke: COLORS[5],
                          "stroke-dasharray": "3 3" }),
      makeShape("circle", { cx: x, cy: y, r: 4.5, fill: COLORS[5] }),
      makeShape("text", { x: isLeft ? x + 9 : x - 9, y: Math.max(top + 10, y + 4), class: "halo",
                          "text-anchor": isLeft ? "start" : "end" },
                `peak ${formatNumber(curve.peak.total)} ${curve.y}`));
  }
  return svg;
}

// A frame whose lanes have names instead of an axis; if it is narrow, the names are in the lanes.
function makeLanes(names, label, x, height, width) {
  const isNarrow = width < 800;
  const left = isNarrow ? 14 : 230, right = width - 30, bottom = names.length * height + 14;
  const svg = makePicture(width, bottom + 46, `${label}: ${names.join(", ")}`);
  const map = x.log ? Math.log10 : (value) => value;
  const [from, to] = [map(x.from), map(x.to)];
  const atX = (value) => left + ((map(value) - from) / (to - from || 1)) * (right - left);
  const count = Math.max(2, Math.round((right - left) / 115));
  let ticks = x.log ? decadesOf(x.from, x.to) : ticksOf(x.from, x.to, count);
  if (x.log && ticks.length < 3) ticks = partsOf(x.from, x.to);
  if (x.log && ticks.length < 3) ticks = ticksOf(x.from, x.to, count);
  for (const tick of ticks)
    svg.append(
      makeShape("line", { x1: atX(tick), x2: atX(tick), y1: 8, y2: bottom, stroke: "var(--grid)" }),
      makeShape("text", { x: atX(tick), y: bottom + 18, "text-anchor": "middle" },
                formatNumber(tick)));
  // A label that is too long for a line takes two.
  const half = x.label.lastIndexOf(" ", x.label.length / 2 + 8);
  const lines = x.label.length * 6.5 < width ? [x.label]
    : [x.label.slice(0, half), x.label.slice(half + 1)];
  lines.forEach((line, place) => svg.append(makeShape("text",
    { x: width / 2, y: bottom + (lines.length > 1 ? 31 + 13 * place : 38), "text-anchor": "middle" },
    line)));
  const pieces = piecesOf(new Set(names));
  const letters = isNarrow ? Math.floor(width / 7.5) : 29;
  names.forEach((name, place) => svg.append(
    makeShape("text", isNarrow ? { x: 4, y: place * height + 14, class: "lane halo" }
      : { x: left - 12, y: place * height + height / 2 + 8, "text-anchor": "end", class: "lane" },
              shortenName(name, letters, pieces), makeShape("title", {}, name))));
  return { svg, atX, left, right, bottom, isNarrow };
}
