// A bench: ratios with intervals, distributions in lanes, a time line of all samples.

const LANE = 64;

// A frame whose lanes have names instead of an axis.
function makeLanes(names, label, x, height) {
  const width = 1180, left = 230, right = 1150, bottom = names.length * height + 14;
  const svg = makePicture(width, bottom + 46, label);
  const map = x.log ? Math.log10 : (value) => value;
  const [from, to] = [map(x.from), map(x.to)];
  const atX = (value) => left + ((map(value) - from) / (to - from || 1)) * (right - left);
  let ticks = x.log ? decadesOf(x.from, x.to) : ticksOf(x.from, x.to, 8);
  if (x.log && ticks.length < 3) ticks = ticksOf(x.from, x.to, 8);
  for (const tick of ticks)
    svg.append(
      makeShape("line", { x1: atX(tick), x2: atX(tick), y1: 8, y2: bottom, stroke: "var(--grid)" }),
      makeShape("text", { x: atX(tick), y: bottom + 18, "text-anchor": "middle" },
                formatNumber(tick)));
  svg.append(makeShape("text", { x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" },
                       x.label));
  names.forEach((name, place) => svg.append(
    makeShape("text", { x: left - 12, y: place * height + height / 2 + 8, "text-anchor": "end",
                        class: "lane" },
              name.length > 32 ? `${name.slice(0, 14)}...${name.slice(-15)}` : name,
              makeShape("title", {}, name))));
  return { svg, atX, left, right, bottom };
}

function drawRatios(ratios) {
  const values = ratios.flatMap((each) => [each.low, each.high, each.ratio, 1]);
  const least = Math.min(...values), most = Math.max(...values);
  const log = most > 4 * least;
  const margin = (most - least) * 0.06 || 0.01;
  const { svg, atX, bottom } = makeLanes(ratios.map((each) => each.name), "ratios",
    { from: log ? least / 1.1 : least - margin, to: log ? most * 1.1 : most + margin, log,
      label: "time over the baseline's" }, 34);
  svg.append(makeShape("line", { x1: atX(1), x2: atX(1), y1: 8, y2: bottom, stroke: "var(--ink)",
                                 "stroke-dasharray": "5 4" }));
  const colors = { faster: COLORS[2], slower: COLORS[5], "no difference shown": GREY };
  ratios.forEach((each, place) => {
    const y = place * 34 + 21, color = colors[each.verdict];
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

function drawDistributions({ edges, lanes, log }) {
  const last = edges.length - 1;
  const beyond = lanes.some((lane) => lane.calm[last] + lane.disturbed[last] > 0);
  const { svg, atX } = makeLanes(lanes.map((lane) => lane.name), "distributions",
    { from: edges[0], to: edges[last], log, label: beyond
      ? "ms of an iteration; what takes longer is counted at the right end" : "ms of an iteration" },
    LANE);
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

function drawSamples({ rounds, lanes }) {
  const values = lanes.flatMap((lane) => lane.points.map(([, ms]) => ms)).sort((a, b) => a - b);
  const least = values[0], most = values.at(-1);
  const log = most > 4 * least && least > 0;
  const end = Math.max(...lanes.flatMap((lane) => lane.points.map(([at]) => at)));
  const { svg, atX, atY, bottom } = makeFrame(1180, 380, "time line",
    { from: 0, to: end * 1.01 || 1, label: "seconds since the bench began" },
    { ...(log ? { from: least / 1.15, to: most * 1.15 } : rangeOf(values)), log, label: "ms",
      format: formatAny });
  rounds.forEach(([from, to]) => svg.prepend(
    makeShape("rect", { x: atX(from) - 1, y: MARGIN.top, width: Math.max(2, atX(to) - atX(from) + 2),
                        height: bottom - MARGIN.top, fill: "var(--head)" })));
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
    const swatch = makePicture(18, 14, lane.name, { "aria-hidden": "true" });
    swatch.append(makeShape("circle", { cx: 9, cy: 7, r: 4, fill: COLORS[place % COLORS.length] }));
    const shown = lane.points.length < lane.total
      ? ` (${formatNumber(lane.points.length, 0)} of ${formatNumber(lane.total, 0)} iterations)` : "";
    return makeElement("li", {}, swatch, lane.name + shown);
  }));
  return [svg, legend];
}

drawSection("result", () => [makeTable(figures.table, "variants")]);
drawSection("ratios", () => [drawRatios(figures.ratios)]);
drawSection("distributions", () => [drawDistributions(figures.distributions)]);
drawSection("timeline", () => drawSamples(figures.timeline));
finishPage();
