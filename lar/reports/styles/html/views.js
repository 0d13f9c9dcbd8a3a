// What each part of the page holds, drawn when all else is defined.

const { tables } = figures;
const NOTHING_TIMED = "No iteration was timed.";

const views = {
  comparison() {
    return drawComparison(figures.comparison);
  },
  latency() {
    const { latency } = figures;
    if (!latency) return [makeNote(NOTHING_TIMED)];
    const spread = latency.deviation === null ? ""
      : `, standard deviation ${formatNumber(latency.deviation, 3)} ms`;
    const notes = [`${latency.count} iterations: mean ${formatNumber(latency.mean, 3)} ms${spread}, `
      + `from ${formatNumber(latency.minimum, 3)} to ${formatNumber(latency.maximum, 3)} ms.`];
    if (latency.bins.some(([first, last]) => first !== last))
      notes.push("Each point is the mean of several iterations, the line from their least to their "
                 + "greatest.");
    if (latency.warmup.length)
      notes.push(`Not shown, the warm-up: `
        + `${latency.warmup.map((time) => formatNumber(time, 3)).join(", ")} ms.`);
    return [drawLatency(latency), makeNote(notes.join(" "))];
  },
  breakdown() {
    const { breakdown } = figures;
    if (!breakdown.length) return [makeNote(NOTHING_TIMED)];
    return makeChoice(breakdown.map((figure) => [figure.name, () => [
      makeNote(figure.about), makeElement("div", { class: "beside" }, ...drawBreakdown(figure)),
    ]]));
  },
  operators() {
    return makeChoice([
      ["each operator", () => [makeTable(tables.operators, "operators")]],
      ["by type", () => [makeTable(tables.types, "types"),
                         drawPie(tables.types, "Time by type")].filter(Boolean)],
    ]);
  },
  kernels() {
    const about = figures.kernels_reported
      ? "The kernels that the device ran."
      : "The engine reports no kernels of a device: these are the algorithms that it chose, or, "
        + "where it does not report those, the types of the operators.";
    return [makeNote(about), makeTable(tables.kernels, "kernels"),
            drawPie(tables.kernels, "Time by kernel")].filter(Boolean);
  },
  timeline() {
    const { timeline } = figures;
    if (!timeline) return [makeNote(NOTHING_TIMED)];
    const left = timeline.left_out
      ? ` The ${timeline.left_out} shortest bars are left out.` : "";
    return [makeNote(`Iteration ${timeline.step}, the one of the median duration: the other `
      + `iterations are in this page as sums only.${left} Drag over a part to zoom in, double-click `
      + "to see all; with the keyboard: + - 0 and arrows."), drawTimeline(timeline)];
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
      notes.push(`${roofline.left_out} operators are not shown: how many operations or bytes they `
                 + "take is not known, or none.");
    if (!roofline.points.length)
      return [makeNote("Of no operator both operations and bytes are known: nothing to draw.")];
    return [drawRoofline(roofline), makeNote(notes.join(" "))];
  },
  memory() {
    if (!figures.memory.length) return [makeNote("Nothing is known of the memory over time.")];
    return figures.memory.map(drawCurve);
  },
  ranges() {
    if (!tables.ranges.rows.length) return [makeNote("The user has named no ranges.")];
    return [makeTable(tables.ranges, "ranges")];
  },
};

for (const [name, draw] of Object.entries(views)) drawSection(name, draw);
finishPage();
