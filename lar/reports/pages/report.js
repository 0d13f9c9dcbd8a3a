// A report: its tables, and its plots by their kinds.

const LANE = 64, BINS = 60;
const SHOWN_SHARE = 0.98; // the other, longest iterations are counted in the last bin

// The bins of all lanes, in ms, and how many calm and disturbed points of each lane are in a bin.
function binLanes(lanes) {
  const sorted = lanes.map(({ points }) => points.map(([, ms]) => ms).sort((a, b) => a - b));
  const at = (values, share) => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  const least = Math.min(...sorted.map((each) => each[0]));
  const most = Math.max(...sorted.map((each) => at(each, SHOWN_SHARE)));
  const log = most > 4 * least && least > 0;
  const [low, high] = log ? [Math.log(least), Math.log(most)] : [least, most];
  const step = (high - low) / BINS || Math.abs(low) * 0.01 || 1e-9;
  const place = (ms) => Math.min(BINS, Math.max(0, Math.floor(((log ? Math.log(ms) : ms) - low) / step)));
  const counted = lanes.map(({ name, points }, lane) => {
    const calm = new Array(BINS + 1).fill(0), disturbed = new Array(BINS + 1).fill(0);
    for (const [, ms, isDisturbed] of points) (isDisturbed ? disturbed : calm)[place(ms)] += 1;
    return { name, calm, disturbed, median: at(sorted[lane], 0.5) };
  });
  const edges = [...new Array(BINS + 1).keys()].map((bin) => low + step * bin);
  return { edges: log ? edges.map(Math.exp) : edges, log, lanes: counted };
}

function drawDistributions({ edges, lanes, log }, width) {
  const last = edges.length - 1;
  const beyond = lanes.some((lane) => lane.calm[last] + lane.disturbed[last] > 0);
  const { svg, atX } = makeLanes(lanes.map((lane) => lane.name), "distributions",
    { from: edges[0], to: edges[last], log, label: beyond
      ? "ms of an iteration; what takes longer is counted at the right end" : "ms of an iteration" },
    LANE, width);
  lanes.forEach((lane, place) => {
    const floor = (place + 1) * LANE + 4;
    const most = Math.max(...lane.calm.map((count, bin) => count + lane.disturbed[bin]), 1);
    const scale = (LANE - 14) / most;
    const color = COLORS[place % COLORS.length];
    lane.calm.forEach((count, bin) => {
      const all = count + lane.disturbed[bin];
      if (!all) return;
      const left = bin < last ? atX(edges[bin]) : atX(edges[last]) + 4;
      const width = bin < last ? Math.max(1, atX(edges[bin + 1]) - left - 1) : 8;
      const text = `${lane.name}: ${all} iterations, ${lane.disturbed[bin]} of them disturbed, `
        + (bin < last ? `${formatAny(edges[bin])} to ${formatAny(edges[bin + 1])} ms`
          : `${formatAny(edges[last])} ms or more`);
      svg.append(makeShape("g", {},
        makeShape("rect", { x: left, y: floor - all * scale, width, height: all * scale,
                            fill: color, opacity: 0.35 }),
        makeShape("rect", { x: left, y: floor - count * scale, width, height: count * scale,
                            fill: color }),
        makeShape("title", {}, text)));
    });
    if (lane.median <= edges[last])
      svg.append(makeShape("line", { x1: atX(lane.median), x2: atX(lane.median), y1: floor - LANE + 8,
                                     y2: floor, stroke: "var(--ink)", "stroke-width": 1.5 },
        makeShape("title", {}, `median ${formatAny(lane.median)} ms`)));
  });
  return svg;
}

function drawSamples({ rounds, lanes }, width) {
  const values = lanes.flatMap((lane) => lane.points.map(([, ms]) => ms)).sort((a, b) => a - b);
  const least = values[0], most = values.at(-1);
  const log = most > 4 * least && least > 0;
  const end = Math.max(...lanes.flatMap((lane) => lane.points.map(([at]) => at)));
  const { svg, atX, atY, top, bottom } = makeFrame(width, 380, "time line of all iterations",
    { from: 0, to: end * 1.01 || 1, label: "seconds since it began" },
    { ...(log ? { from: least / 1.15, to: most * 1.15 } : rangeOf(values)), log, label: "ms",
      format: formatAny });
  rounds.forEach(([from, to]) => svg.prepend(
    makeShape("rect", { x: atX(from) - 1, y: top, width: Math.max(2, atX(to) - atX(from) + 2),
                        height: bottom - top, fill: "var(--head)" })));
  lanes.forEach((lane, place) => {
    const color = COLORS[place % COLORS.length];
    for (const [calm, path] of [[true, ""], [false, ""]]) {
      const d = lane.points.filter(([, , disturbed]) => !disturbed === calm).map(([at, ms]) => {
        const x = atX(at).toFixed(1), y = atY(ms).toFixed(1);
        return calm ? `M${x} ${y}h.01` : `M${x - 2.5} ${y - 2.5}l5 5m0 -5l-5 5`;
      }).join(path);
      if (d)
        svg.append(makeShape("path", { d, fill: "none", stroke: color, opacity: calm ? 0.9 : 0.6,
                                       "stroke-width": calm ? 3.4 : 1, "stroke-linecap": "round" }));
    }
  });
  const legend = makeElement("ul", { class: "legend" }, ...lanes.map((lane, place) => {
    const swatch = makeSwatch(18, 14);
    swatch.append(makeShape("circle", { cx: 9, cy: 7, r: 4, fill: COLORS[place % COLORS.length] }));
    const shown = lane.points.length < lane.total
      ? ` (${formatNumber(lane.points.length, 0)} of ${formatNumber(lane.total, 0)} iterations)` : "";
    return makeElement("li", {}, swatch, lane.name + shown);
  }));
  return [svg, legend];
}

const POINTS = { fault: [COLORS[5], 6], differs: [COLORS[1], 3.5], "": [COLORS[0], 3.5] };

// A line of dots for each curve. Equal tensors are at the bottom; tensors whose error is not a
// number are at the top.
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

// A button that saves a file which the page holds.
function makeDownload({ name, data }) {
  const button = makeElement("button", { type: "button" }, `save ${name}`);
  button.addEventListener("click", () => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const link = makeElement("a", { href: URL.createObjectURL(new Blob([bytes])), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return button;
}

const PLOTS = {
  iterations: (times, width) =>
    [drawDistributions(binLanes(times.lanes), width), ...drawSamples(times, width)],
  depth: drawCurves, curve: drawCurve, download: makeDownload,
};

for (const { section, parts } of figures.sections)
  drawSection(section, () => parts.flatMap(({ plot, figures, table, notes }) => plot
    ? [makeFitted((width) => PLOTS[plot](figures, width))]
    : [makeTable(table, "rows"),
       ...notes.map((text) => makeElement("p", { class: "note lines" }, text))]));
finishPage();
