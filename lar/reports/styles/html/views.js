// What each part of the page holds, drawn when all else is defined.

const { tables } = figures;
const NOTHING_TIMED = "No iteration was timed.";
let openIteration = null; // shows an iteration in the timeline

const views = {
  timeline() {
    const { timeline } = figures;
    if (!timeline) return [makeNote(NOTHING_TIMED)];
    const count = timeline.iterations.length;
    const missing = count === timeline.timed ? ""
      : ` The page has ${count} of the ${timeline.timed} iterations: the median one, the slowest, `
        + "the quickest, and others at even distances; --iteration N puts another one there.";
    const [element, open] = drawTimeline(timeline);
    openIteration = open;
    return [makeNote(`Drag over a part to zoom in, double-click to see all. ${KEYS_HELP}${missing}`),
            element];
  },
  latency() {
    const { latency } = figures;
    if (!latency) return [makeNote(NOTHING_TIMED)];
    const spread = latency.deviation === null ? ""
      : `, standard deviation ${formatNumber(latency.deviation, 3)} ms`;
    const notes = [`${countOf(latency.count, "iteration")}: mean ${formatNumber(latency.mean, 3)} ms${spread}, `
      + `from ${formatNumber(latency.minimum, 3)} to ${formatNumber(latency.maximum, 3)} ms.`];
    if (latency.bins.some(([first, last]) => first !== last))
      notes.push("Each point is the mean of several iterations, the line from their least to their "
                 + "greatest.");
    if (latency.disturbed.length)
      notes.push("The hollow ones were disturbed; the timeline says by what.");
    if (latency.loaded)
      notes.push("An iteration is what a run prints; its step, in the timeline and where the time "
                 + "went, has the loading of its item and the copy of its input too.");
    if (openIteration) notes.push("A click on a point shows the iteration in the timeline.");
    const choose = openIteration && ((number) => {
      openIteration(number);
      document.querySelector("#timeline").scrollIntoView();
    });
    return [makeFitted((width) => drawLatency(latency, width, choose)), makeNote(notes.join(" ")),
            ...drawWarmup(latency.warmup),
            makeDetails("the figures as a table", () => makeStaticTable({
              columns: [["iteration", "", 0], ["to", "", 0], ["least", "ms", 3], ["mean", "ms", 3],
                        ["greatest", "ms", 3]], rows: latency.bins }, "iterations"))];
  },
  breakdown() {
    const { breakdown } = figures;
    if (!breakdown.length) return [makeNote(NOTHING_TIMED)];
    return makeChoice(breakdown.map((figure) => [figure.name, () => [
      makeNote(figure.about), drawBreakdownLegend(figure),
      makeFitted((width) => drawBreakdown(figure, width), 1400),
    ]]));
  },
  operators() {
    return makeChoice([
      ["each operator", () => [makeTable(tables.operators, "operators"),
                               ...noteMarks(tables.operators)]],
      ["by type", () => [makeTable(tables.types, "types"), ...noteMarks(tables.types),
                         drawPie(tables.types, "Time by type")].filter(Boolean)],
    ]);
  },
  kernels() {
    const about = figures.kernels_reported
      ? "The kernels that the device ran."
      : "The engine reports no kernels of a device: these are the algorithms that it chose, or, "
        + "where it does not report those, the types of the operators.";
    return [makeNote(about), makeTable(tables.kernels, "kernels"), ...noteMarks(tables.kernels),
            drawPie(tables.kernels, "Time by kernel")].filter(Boolean);
  },
  roofline() {
    const { roofline } = figures;
    const notes = [];
    if (!roofline.peak)
      notes.push("The peak of where the operators ran was not measured: there is no roof.");
    else
      notes.push(`The roof was measured on the CPU of the run, threads: ${roofline.peak.threads}. `
                 + "Above it: data from the caches, fewer operations than counted, or quicker code "
                 + "than the product that the roof was measured with.");
    if (roofline.left_out)
      notes.push(`Not shown: ${countOf(roofline.left_out, "operator")}, of which operations or bytes `
                 + "are not known, or none, or whose time is too short.");
    if (!roofline.points.length)
      return [makeNote("Of no operator both operations and bytes are known: nothing to draw.")];
    return [drawRooflineLegend(roofline),
            makeFitted((width) => drawRoofline(roofline, width), 1200), makeNote(notes.join(" "))];
  },
  memory() {
    if (!figures.memory.length) return [makeNote("Nothing is known of the memory over time.")];
    return figures.memory.flatMap(drawMemory);
  },
  ranges() {
    if (!tables.ranges.rows.length) return [makeNote("The user has named no ranges.")];
    return [makeTable(tables.ranges, "ranges")];
  },
};

function noteMarks(table) {
  if (!table.marks.some(Boolean)) return [];
  return [makeNote("Marked at the left: something else on the machine made executions longer; the "
                   + "column disturbed counts them.")];
}

function drawWarmup(times) {
  if (!times.length) return [];
  return [makeDetails(`the warm-up, not shown above`, () =>
    makeNote(`${times.map((time) => formatNumber(time, 3)).join(", ")} ms`))];
}

function drawMemory(curve) {
  const parts = [
    makeElement("h3", {}, curve.title),
    makeFitted((width) => drawCurve(curve, width)),
    makeNote(`At most ${formatNumber(Math.max(...curve.points.map(([, y]) => y)))} ${curve.y}.`
      + (curve.about ? ` ${curve.about}` : "")),
  ];
  const table = tables[`peak of ${curve.title}`];
  if (table) parts.push(makeElement("h3", {}, `Tensors at the peak: ${curve.title}`),
                        makeTable(table, "tensors at the peak"));
  return parts;
}

// The timeline first: a point of the iterations opens its iteration there.
for (const [name, draw] of Object.entries(views)) drawSection(name, draw);
finishPage();
