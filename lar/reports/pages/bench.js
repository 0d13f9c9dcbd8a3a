// A bench: distributions in lanes, a time line of all samples.

const LANE = 64;

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

drawSection("result", () => [makeTable(figures.table, "variants")]);
drawSection("ratios", () => [drawRatios(figures.ratios)]);
drawSection("distributions", () =>
  [makeFitted((width) => drawDistributions(figures.distributions, width))]);
drawSection("timeline", () => [makeFitted((width) => drawSamples(figures.timeline, width))]);
finishPage();
