// The comparison of two runs: tables of tensors, and their errors over the depth.

const LEAST_ERROR = 1e-9, GREATEST_ERROR = 100;
const POINTS = { fault: [COLORS[5], 6], differs: [COLORS[1], 3.5], "": [COLORS[0], 3.5] };

// Equal tensors stand at the bottom, those with an error that is no number at the top.
function drawDepth(points, width) {
  const deepest = Math.max(1, ...points.map(([depth]) => depth));
  const { svg, atX, atY } = makeFrame(width, 340, "error over depth",
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

// The errors of several sides: a line of dots for each.
function drawCurves(curves, label, width) {
  const all = curves.flatMap(({ points }) => points);
  const deepest = Math.max(1, ...all.map(([place]) => place));
  const errors = all.map(([, error]) => error).filter((error) => error);
  const least = 10 ** (Math.floor(Math.log10(Math.min(1, ...errors))) - 1);  // where equal ones are
  const most = 10 ** Math.ceil(Math.log10(Math.max(least * 100, ...errors)) + 0.01);
  const isNarrow = width < NARROW, names = curves.map(({ name }) => name).join(", ");
  const { svg, atX, atY, right } = makeFrame(width, 340, `error of each curve: ${names}`,
    { from: -deepest * 0.02, to: deepest * 1.02, label, whole: true },
    { from: least, to: most, label: "relative error", log: true,
      format: (tick) => tick < least * 2 ? "equal" : tick.toExponential(0) }, isNarrow ? 12 : 90);
  curves.forEach(({ name, points }, number) => {
    const color = COLORS[number % COLORS.length];
    const radius = number ? 3.5 : 5.5;  // to be seen behind another in the same place
    for (const [place, error, operator] of points) {
      const shown = Math.min(Math.max(error ?? most, least), most);
      svg.append(
        makeShape("circle", { cx: atX(place), cy: atY(shown), r: radius, fill: color },
          makeShape("title", {},
            `${name}, ${operator}: ${error === null ? "not a number" : formatAny(error)}`)));
    }
    const [x, y] = isNarrow ? [110 + 80 * number, 10] : [right + 14, 24 + 18 * number];
    svg.append(makeShape("circle", { cx: x, cy: y, r: 4, fill: color }),
               makeShape("text", { x: x + 10, y: y + 4 }, name));
  });
  return svg;
}

function drawFitted(curves, label) {
  return makeFitted((width) => drawCurves(curves, label, width));
}

figures.culprits.forEach((table, place) =>
  drawSection(`culprit${place + 1}`, () => [makeTable(table, "tensors")]));
drawSection("depth", () => [figures.curves
  ? drawFitted(figures.curves, "operators before it")
  : makeFitted((width) => drawDepth(figures.depth, width))]);
for (const name of ["differing", "all", "unmatched"])
  drawSection(name, () => [makeTable(figures[name], "tensors")]);
finishPage();
