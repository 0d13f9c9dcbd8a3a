// Plots: axes, curves, bars, pies, the roofline, ratios in lanes. Each is drawn for a width.

function ticksOf(least, most, count) {
  const raw = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= raw * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(least / step - 1e-9) * step; tick <= most + step * 1e-9; tick += step)
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  return ticks;
}

// A number on an axis: as many digits as its distance to the next one needs.
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

// A frame with axes: `x` and `y` are {from, to, label, log, format}, `beside` is free at the right;
// returns the picture, its edges and its scales. `x` may have a scale of its own, `at`.
function makeFrame(width, height, label, x, y, beside = 24) {
  const svg = makePicture(width, height, label);
  const isNarrow = width < NARROW;
  const left = isNarrow ? 52 : 76, top = isNarrow ? 26 : 14;
  const right = width - beside, bottom = height - BOTTOM;
  const scale = (axis, start, end) => {
    const map = axis.log ? Math.log10 : (value) => value;
    const [from, to] = [map(axis.from), map(axis.to)];
    return (value) => start + ((map(value) - from) / (to - from || 1)) * (end - start);
  };
  const atX = scale(x, left + (x.folded || 0), right), atY = scale(y, bottom, top);
  const ticksFor = (axis, count) =>
    axis.log ? decadesOf(axis.from, axis.to) : ticksOf(axis.from, axis.to, count);
  const formatFor = (axis) => axis.format || (axis.log ? (value) => formatNumber(value) : formatNext);
  const yTicks = ticksFor(y, 5);
  for (const tick of yTicks)
    svg.append(
      makeShape("line", { x1: left, x2: right, y1: atY(tick), y2: atY(tick),
                          stroke: "var(--grid)" }),
      makeShape("text", { x: left - 8, y: atY(tick) + 4, "text-anchor": "end" },
                formatFor(y)(tick, yTicks[1] - yTicks[0])));
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

// What an axis shows: from 0, unless all values lie close together far from it.
function rangeOf(values, fromZero) {
  const most = Math.max(...values), least = Math.min(...values);
  if (fromZero || least < most / 2 || least < 0) return { from: Math.min(0, least), to: Math.max(most * 1.05, 0) || 1 };
  const margin = (most - least) * 0.15 || most * 0.05 || 1;
  return { from: least - margin, to: most + margin };
}

function nameBin(first, last) {
  return first === last ? `iteration ${first}` : `iterations ${first} to ${last}`;
}

// Heights of labels, from the lowest up, moved apart so that none covers another.
function spreadLabels(heights) {
  const apart = [];
  for (const height of heights) apart.push(Math.min(height, (apart.at(-1) ?? Infinity) - 14));
  return apart;
}

// `choose` is called with the number of an iteration whose point was clicked.
function drawLatency(latency, width, choose) {
  const values = latency.bins.flatMap(([, , least, , most]) => [least, most]);
  const first = latency.bins[0][0], last = latency.bins.at(-1)[1];
  const label = `Time of each of ${countOf(latency.count, "iteration")}: median `
    + `${formatNumber(latency.median, 3)} ms, from ${formatNumber(latency.minimum, 3)} to `
    + `${formatNumber(latency.maximum, 3)} ms`;
  const isNarrow = width < NARROW;
  const { svg, atX, atY, left, right } = makeFrame(width, 260, label,
    { from: first - 0.5, to: last + 0.5, label: "iteration", whole: true },
    { ...rangeOf(values), label: "ms" }, isNarrow ? 12 : 130);
  const levels = [["median", latency.median], ...Object.entries(latency.percentiles)];
  const heights = spreadLabels(levels.map(([, value]) => atY(value)));
  levels.forEach(([, value], place) =>
    svg.append(
      makeShape("line", { x1: left, x2: right, y1: atY(value), y2: atY(value),
                          stroke: place ? "var(--soft)" : "var(--ink)",
                          "stroke-dasharray": place ? "5 4" : null })));
  for (const [from, to, least, mean, most] of latency.bins) {
    const x = atX((from + to) / 2);
    const text = `${nameBin(from, to)}: ${formatNumber(mean, 3)} ms`
      + (from === to ? "" : ` in the mean, ${formatNumber(least, 3)} to ${formatNumber(most, 3)}`);
    const disturbed = (latency.disturbed || []).filter((each) => from <= each && each <= to);
    const radius = latency.bins.length > 150 ? 2 : 3.5;
    const group = makeShape("g", {},
      from === to ? null
        : makeShape("line", { x1: x, x2: x, y1: atY(least), y2: atY(most), stroke: COLORS[4] }),
      // A disturbed one is hollow, as its note says.
      makeShape("circle", { cx: x, cy: atY(mean), r: radius, stroke: COLORS[0],
                            fill: disturbed.length ? "var(--paper)" : COLORS[0] }),
      makeShape("title", {}, text + (disturbed.length ? ", disturbed" : "")));
    if (choose) {
      group.style.cursor = "pointer";
      group.addEventListener("click", () => choose(from));
    }
    svg.append(group);
  }
  levels.forEach(([name], place) => svg.append(
    makeShape("text", isNarrow ? { x: right - 2, y: heights[place] - 3, "text-anchor": "end",
                                   class: "halo" }
      : { x: right + 6, y: heights[place] + 4 }, `${name} ${formatNumber(levels[place][1], 3)} ms`)));
  return svg;
}

function drawBreakdown(breakdown, width) {
  const first = breakdown.bins[0][0], last = breakdown.bins.at(-1)[1];
  const sums = breakdown.bins.map(([, , ...parts]) => parts.reduce((a, b) => a + b, 0));
  const label = `Where the time of each iteration went, ${breakdown.name}: `
    + breakdown.buckets.map((name, place) =>
      `${name} ${formatNumber(breakdown.shares[place], 1)}%`).join(", ");
  const { svg, atX, atY, left, right, bottom } = makeFrame(width, 280, label,
    { from: first - 0.5, to: last + 0.5, label: "iteration", whole: true },
    { ...rangeOf(sums, true), label: "ms" });
  const fills = breakdown.buckets.map((_, place) =>
    makePattern(svg, place, COLORS[place % COLORS.length]));
  for (const [from, to, ...parts] of breakdown.bins) {
    const start = atX(from - 0.5), whole = atX(to + 0.5) - start;
    const gap = Math.min(2, whole * 0.2);
    let below = 0;
    parts.forEach((part, place) => {
      const y = atY(below + part), height = atY(below) - y;
      below += part;
      if (height > 0)
        svg.append(makeShape("rect", { x: start + gap / 2, y, width: whole - gap, height,
                                       fill: fills[place] },
          makeShape("title", {}, `${nameBin(from, to)}, ${breakdown.buckets[place]}: `
                                 + `${formatNumber(part, 3)} ms`)));
    });
  }
  svg.append(makeShape("line", { x1: left, x2: right, y1: bottom, y2: bottom,
                                 stroke: "var(--axis)" }));
  return svg;
}

function drawBreakdownLegend(breakdown) {
  return makeLegend(breakdown.buckets.map((name, place) => [
    name, `${formatNumber(breakdown.means[place], 3)} ms`,
    `${formatNumber(breakdown.shares[place], 2)}%`, place]));
}

// A legend with the patterns of the picture: [name, value, share, place] each.
function makeLegend(entries) {
  return makeElement("ul", { class: "legend" }, ...entries.map(([name, value, share, place]) => {
    const swatch = makeSwatch(18, 14);
    swatch.append(makeShape("rect", { width: 18, height: 14,
      fill: makePattern(swatch, place, COLORS[place % COLORS.length]) }));
    return makeElement("li", {}, swatch, name, makeElement("span", { class: "value" },
                                                            `${value} · ${share}`));
  }));
}

// A pie of the greatest rows of a table and of what is left, with a number in each slice.
function drawPie(table, title) {
  const places = ["share", "total"].map((name) =>
    table.columns.findIndex(([column]) => column === name));
  const [share, total] = places;
  if (share < 0) return null;
  const rows = table.rows.filter((row) => row[share] > 0)
    .map((row) => [row[0], row[share], row[total]]).sort((a, b) => b[1] - a[1]);
  const slices = rows.length === 10 ? rows : rows.slice(0, 9);
  const rest = rows.slice(slices.length);
  const sum = (place) => rest.reduce((all, row) => all + row[place], 0);
  if (rest.length) slices.push([countOf(rest.length, "other"), sum(1), sum(2)]);
  const isRest = (place) => rest.length && place === 9;
  const colorOf = (place) => (isRest(place) ? GREY : COLORS[place]);
  const numberOf = (place, at) => makeShape("text", {
    ...at, "text-anchor": "middle", class: "on",
    style: `fill:${isRest(place) ? ON_GREY : ON_COLORS[place]}` }, String(place + 1));
  if (!slices.length) return null;
  const svg = makePicture(220, 220, `${title}, a pie: its slices are in the list beside it`);
  const whole = slices.reduce((sum, slice) => sum + slice[1], 0);
  let angle = -Math.PI / 2;
  slices.forEach(([name, part], place) => {
    const turn = (part / whole) * 2 * Math.PI, middle = angle + turn / 2;
    const color = colorOf(place);
    const at = (radius, way) =>
      `${110 + radius * Math.cos(way)} ${110 + radius * Math.sin(way)}`;
    const outline = slices.length === 1
      ? makeShape("circle", { cx: 110, cy: 110, r: 104, fill: color })
      : makeShape("path", { fill: color, stroke: "var(--paper)", "stroke-width": 1.5,
          d: `M110 110L${at(104, angle)}A104 104 0 ${turn > Math.PI ? 1 : 0} 1 `
             + `${at(104, angle + turn)}Z` });
    outline.append(makeShape("title", {}, `${name}: ${formatNumber(part, 2)}%`));
    svg.append(outline);
    if (part / whole > 0.04) {
      const [x, y] = at(slices.length === 1 ? 0 : 78, middle).split(" ");
      svg.append(numberOf(place, { x, y: Number(y) + 4 }));
    }
    angle += turn;
  });
  const pieces = piecesOf(new Set(slices.map(([name]) => name)));
  const list = makeElement("ol", { class: "legend" }, ...slices.map(([name, part, time], place) => {
    const swatch = makeSwatch(22, 16);
    swatch.append(makeShape("rect", { width: 22, height: 16, rx: 3, fill: colorOf(place) }),
                  numberOf(place, { x: 11, y: 12 }));
    return makeElement("li", {}, swatch, makeName(name, pieces),
      makeElement("span", { class: "value" },
                  `${formatNumber(time, 3)} ms · ${formatNumber(part, 2)}%`));
  }));
  return makeElement("div", {}, makeElement("h3", {}, title),
                     makeElement("div", { class: "beside" }, svg, list));
}

const MARKS = [
  (r) => makeShape("circle", { r }),
  (r) => makeShape("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r }),
  (r) => makeShape("path", { d: `M0 ${-r * 1.2}L${r * 1.15} ${r * 0.9}L${-r * 1.15} ${r * 0.9}Z` }),
  (r) => makeShape("path", { d: `M0 ${-r * 1.3}L${r * 1.3} 0L0 ${r * 1.3}L${-r * 1.3} 0Z` }),
  (r) => makeShape("path", { d: `M0 ${r * 1.2}L${r * 1.15} ${-r * 0.9}L${-r * 1.15} ${-r * 0.9}Z` }),
  (r) => makeShape("circle", { r: r * 0.7 }),
];

function makeMark(place, radius) {
  const kind = Math.min(place, MARKS.length - 1);
  const mark = MARKS[kind](radius);
  mark.setAttribute("fill", kind === MARKS.length - 1 ? GREY : COLORS[kind]);
  mark.setAttribute("fill-opacity", 0.8);
  mark.setAttribute("stroke", "var(--paper)");
  return mark;
}


// Draws the roof and returns its labels, which come above all points.
function drawRoof({ svg, atX, atY, left, right }, peak, x, y) {
  const ridge = peak.gflops / peak.gbytes;
  const roof = (intensity) => Math.min(peak.gflops, intensity * peak.gbytes);
  const start = Math.max(x.from, y.from / peak.gbytes), middle = Math.sqrt(start * ridge);
  const rise = atY(roof(start)) - atY(peak.gflops), run = atX(ridge) - atX(start);
  const angle = (-Math.atan2(rise, run) * 180) / Math.PI;
  svg.append(
    makeShape("path", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5,
      d: `M${atX(start)} ${atY(roof(start))}L${atX(ridge)} ${atY(peak.gflops)}H${right}` }),
    makeShape("line", { x1: atX(ridge), x2: atX(ridge), y1: atY(peak.gflops), y2: atY(y.from),
                        stroke: "var(--soft)", "stroke-dasharray": "3 4" }));
  const label = (text, attributes) => makeShape("text", { class: "halo", ...attributes }, text);
  const at = atX(ridge), sizeOf = (text) => 6.8 * text.length + 12;
  const texts = [`memory binds below ${formatNumber(ridge)} FLOP/byte`,
                 `${formatNumber(ridge)} FLOP/byte`];
  const isLeft = sizeOf(texts[0]) < at - left || at > (left + right) / 2;
  const room = isLeft ? at - left : right - at;
  const binds = texts.find((text) => sizeOf(text) < room) ?? texts[1];
  return [
    label(`${formatNumber(peak.gflops)} GFLOP/s`,
          { x: right - 4, y: atY(peak.gflops) - 6, "text-anchor": "end" }),
    label(binds, { x: at + (isLeft ? -6 : 6), y: atY(y.from) - 6,
                   "text-anchor": isLeft ? "end" : "start" }),
    label(`${formatNumber(peak.gbytes)} GB/s`, {
      "text-anchor": "middle",
      transform: `translate(${atX(middle)} ${atY(roof(middle))}) rotate(${angle}) translate(0 -7)`,
    }),
  ];
}

function drawRoofline(roofline, width) {
  const { points, peak } = roofline;
  const ridge = peak && peak.gflops / peak.gbytes;
  const across = points.map((point) => point[2]).concat(peak ? [ridge] : []);
  const up = points.map((point) => point[3]).concat(peak ? [peak.gflops] : []);
  const around = (values) => ({
    from: 10 ** Math.floor(Math.log10(Math.min(...values)) - 0.1),
    to: 10 ** Math.ceil(Math.log10(Math.max(...values)) + 0.1), log: true,
  });
  const x = { ...around(across), label: "FLOP / byte" }, y = { ...around(up), label: "GFLOP/s" };
  const label = `Roofline: ${countOf(points.length, "operator")}; the table of operators has their figures`;
  const frame = makeFrame(width, Math.max(320, Math.min(520, width * 0.55)), label, x, y);
  const { svg, atX, atY } = frame;
  const labels = peak ? drawRoof(frame, peak, x, y) : [];
  const types = typesOf(points);
  for (const [name, type, intensity, rate, share] of [...points].reverse()) {
    const mark = makeMark(types.indexOf(type), 3 + Math.sqrt(share) * 1.6);
    mark.append(makeShape("title", {}, `${name} (${type}): ${formatNumber(intensity)} FLOP/byte, `
      + `${formatNumber(rate)} GFLOP/s, ${formatNumber(share, 2)}% of the time`));
    svg.append(makeShape("g", { transform: `translate(${atX(intensity)} ${atY(rate)})` }, mark));
  }
  svg.append(...labels);
  return svg;
}

function typesOf(points) {
  return [...new Set(points.map((point) => point[1]))];
}

function drawRooflineLegend({ points }) {
  const types = typesOf(points), shown = types.slice(0, MARKS.length - 1);
  return makeElement("ul", { class: "legend" },
    ...[...shown, ...(types.length > shown.length ? ["other types"] : [])].map((name, place) => {
      const swatch = makeSwatch(20, 20);
      swatch.append(makeShape("g", { transform: "translate(10 10)" }, makeMark(place, 6)));
      return makeElement("li", {}, swatch, name);
    }));
}

// A curve. What came before `curve.folded`, the warm-up, is folded into a stripe at the left.
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

// A frame whose lanes have names instead of an axis; where it is narrow, they stand in the lanes.
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
  const letters = isNarrow ? Math.floor(width / 7.5) : 31;
  names.forEach((name, place) => svg.append(
    makeShape("text", isNarrow ? { x: 4, y: place * height + 14, class: "lane halo" }
      : { x: left - 12, y: place * height + height / 2 + 8, "text-anchor": "end", class: "lane" },
              shortenName(name, letters, pieces), makeShape("title", {}, name))));
  return { svg, atX, left, right, bottom, isNarrow };
}

// Ratios with their intervals, a lane each: {name, ratio, low, high, verdict}.
function drawRatios(ratios, width) {
  const values = ratios.flatMap((each) => [each.low, each.high, each.ratio, 1]);
  const least = Math.min(...values), most = Math.max(...values);
  const log = most > 4 * least;
  const margin = (most - least) * 0.06 || 0.01;
  const height = width < 800 ? 42 : 34;
  const { svg, atX, bottom, isNarrow } = makeLanes(ratios.map((each) => each.name), "ratios",
    { from: log ? least / 1.1 : least - margin, to: log ? most * 1.1 : most + margin, log,
      label: "time over the baseline's" }, height, width);
  svg.append(makeShape("line", { x1: atX(1), x2: atX(1), y1: 8, y2: bottom, stroke: "var(--ink)",
                                 "stroke-dasharray": "5 4" }));
  const colors = { faster: COLORS[2], slower: COLORS[5], "wrong numbers": COLORS[5] };
  ratios.forEach((each, place) => {
    const y = place * height + (isNarrow ? 30 : 21), color = colors[each.verdict] ?? GREY;
    svg.append(makeShape("g", {},
      makeShape("line", { x1: atX(each.low), x2: atX(each.high), y1: y, y2: y, stroke: color,
                          "stroke-width": 3 }),
      ...[each.low, each.high].map((end) => makeShape("line",
        { x1: atX(end), x2: atX(end), y1: y - 6, y2: y + 6, stroke: color, "stroke-width": 2 })),
      makeShape("circle", { cx: atX(each.ratio), cy: y, r: 5, fill: color }),
      makeShape("title", {}, `${each.name}: ${formatNumber(each.ratio, 4)} `
        + `(${formatNumber(each.low, 4)} to ${formatNumber(each.high, 4)}), ${each.verdict}`)));
  });
  return svg;
}
