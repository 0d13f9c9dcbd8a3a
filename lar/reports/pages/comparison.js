// The comparison of two runs: tables of tensors, and their errors over the depth.

const LEAST_ERROR = 1e-9, GREATEST_ERROR = 100;
const POINTS = { fault: [COLORS[5], 6], differs: [COLORS[1], 3.5], "": [COLORS[0], 3.5] };

// Equal tensors stand at the bottom, those with an error that is no number at the top.
function drawDepth(points) {
  const deepest = Math.max(1, ...points.map(([depth]) => depth));
  const { svg, atX, atY } = makeFrame(1180, 340, "error over depth",
    { from: -deepest * 0.02, to: deepest * 1.02, label: "operators before it", whole: true },
    { from: LEAST_ERROR, to: GREATEST_ERROR, label: "relative error", log: true,
      format: (tick) => tick < LEAST_ERROR * 2 ? "equal" : tick.toExponential(0) });
  for (const [depth, error, name, mark] of points) {
    const shown = Math.min(Math.max(error ?? GREATEST_ERROR, LEAST_ERROR), GREATEST_ERROR);
    const [color, radius] = POINTS[mark];
    svg.append(makeShape("circle", { cx: atX(depth), cy: atY(shown), r: radius, fill: color },
      makeShape("title", {}, `${name}: ${error === null ? "not a number" : formatAny(error)}`)));
  }
  return svg;
}

figures.culprits.forEach((table, place) =>
  drawSection(`culprit${place + 1}`, () => [makeTable(table, "tensors")]));
drawSection("depth", () => [drawDepth(figures.depth)]);
for (const name of ["differing", "all", "unmatched"])
  drawSection(name, () => [makeTable(figures[name], "tensors")]);
finishPage();
