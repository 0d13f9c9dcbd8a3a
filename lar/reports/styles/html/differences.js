// The difference of two runs.

const MORE = COLORS[5], LESS = COLORS[0];

function formatChange(value, digits) {
  return value === null ? "N/A" : `${value > 0 ? "+" : ""}${formatNumber(value, digits)}`;
}

// Bars to the left where this run took less and to the right where it took more. Where it is
// narrow, names stand above.
function drawDifferences(bars, width) {
  const isNarrow = width < 800;
  const height = isNarrow ? 40 : 24, over = isNarrow ? 16 : 0;
  const left = isNarrow ? 8 : Math.round(width * 0.26), right = width - (isNarrow ? 8 : 200);
  const reach = 1.3 * Math.max(...bars.map(([, , delta]) => Math.abs(delta)));
  const middle = (left + right) / 2;
  const atX = (value) => middle + value / reach * (right - left) / 2;
  const bottom = 12 + bars.length * height;
  const svg = makePicture(width, bottom + 40,
                          "The largest differences; the table below has their figures");
  for (const tick of ticksOf(-reach, reach, Math.max(3, Math.round((right - left) / 90))))
    svg.append(
      makeShape("line", { x1: atX(tick), x2: atX(tick), y1: 8, y2: bottom,
                          stroke: tick ? "var(--grid)" : "var(--axis)" }),
      makeShape("text", { x: atX(tick), y: bottom + 16, "text-anchor": "middle" },
                formatNumber(tick)));
  svg.append(makeShape("text", { x: middle, y: bottom + 34, "text-anchor": "middle" },
    isNarrow ? "← less · µs an iteration · more →"
      : "← this run took less · µs an iteration · this run took more →"));
  const pieces = piecesOf(new Set(bars.map(([name]) => name)));
  bars.forEach(([name, side, delta], place) => {
    const y = 12 + place * height + over, center = y + (height - over) / 2;
    const color = delta > 0 ? MORE : LESS, from = atX(Math.min(0, delta));
    const title = `${name} (${side}): ${formatChange(delta, 3)} µs`;
    const value = `${formatChange(delta, 2)} µs` + (side === "both" ? "" : `, ${side}`);
    const label = isNarrow
      ? [makeShape("text", { x: left, y: y - 2, class: "halo" },
                   shortenName(name, Math.floor((width - value.length * 7) / 7.5), pieces)),
         makeShape("text", { x: right, y: y - 2, "text-anchor": "end", class: "halo" }, value)]
      : [makeShape("text", { x: left - 8, y: center + 4, "text-anchor": "end" },
                   shortenName(name, Math.floor((left - 8) / 7.4), pieces)),
         makeShape("text", { x: right + 8, y: center + 4 }, value)];
    svg.append(makeShape("g", { class: "difference" },
      makeShape("title", {}, title),
      makeShape("rect", { x: from, y: y + 4, width: atX(Math.max(0, delta)) - from,
                          height: height - over - 8, fill: color, "fill-opacity": 0.85 }),
      ...label));
  });
  return svg;
}

function drawComparison(comparison) {
  return [
    ...comparison.about.map(makeNote),
    ...(tables["what differs"].rows.length
      ? [makeStaticTable(tables["what differs"], "what differs")] : []),
    makeStaticTable(tables["compared iterations"], "compared iterations"),
    ...(comparison.bars.length
      ? [makeElement("h3", {}, "Largest differences"),
         makeFitted((width) => drawDifferences(comparison.bars, width))]
      : [makeNote("No operator took more or less time.")]),
    makeElement("h3", {}, "Each operator"),
    makeTable(tables["compared operators"], "compared operators"),
    ...noteMarks(tables["compared operators"]),
    ...comparison.notes.map(makeNote),
  ];
}
