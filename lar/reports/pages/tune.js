// A search: its course over time, ratios with intervals, what each choice contributes.

const BAR_KINDS = { screen: GREY, search: COLORS[1], race: COLORS[0], confirm: COLORS[2] };
const LANE_KINDS = {
  best: { color: COLORS[2], width: 2.4, opacity: 1 },
  ok: { color: COLORS[0], width: 1, opacity: 0.55 },
  "given up": { color: GREY, width: 1, opacity: 0.8 },
  "wrong numbers": { color: COLORS[5], width: 1, opacity: 0.8 },
  failed: { color: COLORS[5], width: 1, opacity: 0.8 },
};

function drawCross(x, y, color) {
  return makeShape("path", { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, stroke: color, fill: "none",
                             "stroke-width": 2 });
}

function drawLane(svg, { name, kind, points }, atX, atY, top) {
  const { color, width, opacity } = LANE_KINDS[kind];
  const known = points.filter(([, ratio]) => ratio !== null);
  const group = makeShape("g", { opacity });
  if (known.length > 1)
    group.append(makeShape("path", { fill: "none", stroke: color, "stroke-width": width,
      d: known.map(([at, ratio], place) =>
        `${place ? "L" : "M"}${atX(at).toFixed(1)} ${atY(ratio).toFixed(1)}`).join("") }));
  for (const [at, ratio] of points) {
    const x = atX(at), y = ratio === null ? top : atY(ratio);
    const text = ratio === null ? `${name}: failed` : `${name}: ${formatNumber(ratio, 4)}`
      + (kind === "ok" ? "" : `, ${kind}`);
    const mark = ratio === null || kind === "wrong numbers" ? drawCross(x, y, color)
      : makeShape("circle", { cx: x, cy: y, r: kind === "best" ? 5 : 3.5, fill: color });
    mark.append(makeShape("title", {}, text));
    group.append(mark);
  }
  svg.append(group);
}

function drawBars(svg, trials, atX, top) {
  for (const { kind, from, to, text } of trials) {
    const color = BAR_KINDS[kind];
    svg.append(makeShape("rect", { x: atX(from), y: top, width: Math.max(1.5, atX(to) - atX(from) - 1),
                                   height: 14, rx: 2, fill: color },
      makeShape("title", {}, `${text}, ${formatNumber(to - from, 1)} s`)));
  }
}

function makeKey(entries) {
  return makeElement("ul", { class: "legend" }, ...entries.map(([name, color]) => {
    const swatch = makeSwatch(18, 14);
    swatch.append(makeShape("rect", { x: 2, y: 2, width: 14, height: 10, rx: 2, fill: color }));
    return makeElement("li", {}, swatch, name);
  }));
}

function drawCourse({ lanes, best, trials }, width) {
  const ratios = lanes.flatMap((lane) => lane.points.map(([, ratio]) => ratio))
    .filter((ratio) => ratio !== null).concat(1, best.map(([, ratio]) => ratio));
  const least = Math.min(...ratios), most = Math.max(...ratios);
  const end = Math.max(...trials.map((trial) => trial.to), 1e-3);
  const log = most > 4 * least;
  const margin = (most - least) * 0.1 || 0.05;
  const { svg, atX, atY, left, top, bottom } = makeFrame(width, 420, "course of the search",
    { from: 0, to: end * 1.01, label: "seconds since the search began" },
    { from: log ? least / 1.3 : Math.max(0, least - margin), to: log ? most * 1.3 : most + margin,
      log, label: "ratio to the plain run", format: formatAny });
  if (log)
    for (const tick of partsOf(least / 1.3, most * 1.3).filter((each) => Math.log10(each) % 1))
      svg.append(
        makeShape("line", { x1: left, x2: atX(end), y1: atY(tick), y2: atY(tick),
                            stroke: "var(--grid)" }),
        makeShape("text", { x: left - 8, y: atY(tick) + 4, "text-anchor": "end" },
                  formatNumber(tick)));
  svg.append(makeShape("line", { x1: left, x2: atX(end), y1: atY(1), y2: atY(1),
                                 stroke: "var(--ink)", "stroke-dasharray": "5 4" },
    makeShape("title", {}, "the plain run")));
  drawBars(svg, trials, atX, bottom - 16);
  for (const lane of lanes) drawLane(svg, lane, atX, atY, top + 6);
  const steps = best.map(([at, ratio], place) =>
    place ? `H${atX(at).toFixed(1)}V${atY(ratio).toFixed(1)}`
      : `M${atX(0).toFixed(1)} ${atY(1).toFixed(1)}H${atX(at).toFixed(1)}V${atY(ratio).toFixed(1)}`);
  svg.append(makeShape("path", { d: steps.join(""), fill: "none", stroke: "var(--ink)",
                                 "stroke-width": 1.6 },
    makeShape("title", {}, `best at the end: ${best.at(-1)[2]}`)));
  best.forEach(([at, ratio, name], place) => {
    if (name === (place ? best[place - 1][2] : "plain")) return;
    const end = atX(at) > width * 0.6;
    svg.append(makeShape("text", { x: atX(at) + (end ? -8 : 8), y: atY(ratio) - 8, class: "halo lane",
                                   "text-anchor": end ? "end" : "start" }, name));
  });
  const kinds = [...new Set(lanes.map((lane) => lane.kind))];
  const bars = [...new Set(trials.map((trial) => trial.kind))];
  return [svg, makeElement("div", { class: "beside" },
    makeKey(kinds.map((kind) => [kind === "ok" ? "other candidates" : kind,
                                 LANE_KINDS[kind].color])),
    makeKey(bars.map((kind) => [`trials: ${kind}`, BAR_KINDS[kind]])))];
}

drawSection("result", () => [makeTable(figures.ranking, "candidates")]);
drawSection("course", () => [makeFitted((width) => drawCourse(figures.course, width))]);
drawSection("ratios", () => [drawRatios(figures.ratios, "ratio to the plain run")]);
drawSection("contributions", () =>
  [drawRatios(figures.contributions.lanes, "ratio with it to without it"), makeTable(figures.contributions.table, "choices")]);
finishPage();
