// The timeline of an iteration: rows of bars for each thread, zoomed by dragging, buttons and keys.

const ROW = 18, LANE_HEAD = 20, AXIS = 26;
const SHORTEST_NS = 200; // no use in zooming further
const KEYS_HELP = "Keys: + and - zoom, 0 shows all, left and right move, up and down go from one bar "
  + "to the next, Enter shows the bar alone.";

// The bars of an iteration, `[lane, row, start, duration, name, kind]`; see `pack_numbers`.
function unpackBars(timeline, iteration) {
  const packed = atob(iteration.bars), bars = [];
  let at = 0, start = 0;
  const next = () => {
    let number = 0, weight = 1, byte;
    do {
      byte = packed.charCodeAt(at++);
      number += (byte & 127) * weight;
      weight *= 128;
    } while (byte > 127);
    return number;
  };
  while (at < packed.length) {
    const [lane, row, name, kind] = timeline.whats[next()];
    start += next() * iteration.unit_ns;
    bars.push([lane, row, start, next() * iteration.unit_ns, name, kind]);
  }
  return bars;
}

// Returns the element, and what shows another iteration in it.
function drawTimeline(timeline) {
  const colors = timeline.kinds.map((_, place) => COLORS[place % COLORS.length]);
  const view = { from: 0, to: 1, width: 0 };
  let iteration, bars, tops, height, chosen = -1;
  let svg, content, choice, fills;
  const pieces = piecesOf(new Set(timeline.names), SHORT);
  const status = makeElement("span", { class: "note", role: "status" });
  const legend = makeElement("ul", { class: "legend beside" });
  const which = makeElement("p", { class: "note" });

  function chooseIteration(number) {
    iteration = timeline.iterations.find((each) => each.number === number)
      || nearestOf(timeline.iterations, number);
    bars = unpackBars(timeline, iteration);
    const rows = timeline.lanes.map(() => 0);
    for (const [lane, row] of bars) rows[lane] = Math.max(rows[lane], row + 1);
    tops = [];
    height = AXIS;
    rows.forEach((count, lane) => {
      tops[lane] = height;
      if (count) height += LANE_HEAD + count * ROW + 6;
    });
    const used = new Set(bars.map(([lane]) => lane));
    tops = tops.map((top, lane) => used.has(lane) ? top : null);
    chosen = -1;
    picker.value = iteration.number;
    view.from = 0;
    view.to = iteration.total_ns;
    which.textContent = `Iteration ${describeIteration(timeline, iteration)}.`;
    drawLegend();
  }

  function show(from, to) {
    const { total_ns: total } = iteration;
    const length = Math.min(Math.max(to - from, SHORTEST_NS), total);
    view.from = Math.max(0, Math.min(from, total - length));
    view.to = view.from + length;
    draw();
  }

  function zoom(factor) {
    const middle = (view.from + view.to) / 2, half = ((view.to - view.from) / 2) * factor;
    show(middle - half, middle + half);
  }

  function pan(part) {
    const by = (view.to - view.from) * part;
    show(view.from + by, view.to + by);
  }

  function showAll() {
    show(0, iteration.total_ns);
  }

  function describeBar([lane, , start, duration, name, kind]) {
    return `${timeline.names[name]}\n${timeline.kinds[kind]}, ${formatTime(duration)}, `
      + `${formatTime(start)} after the start, on ${timeline.lanes[lane]}`;
  }

  // Goes to the next bar of the same thread, or of the next one at its ends.
  function step(by) {
    const order = bars.map((_, index) => index)
      .sort((a, b) => bars[a][0] - bars[b][0] || bars[a][2] - bars[b][2]);
    const place = order.indexOf(chosen);
    chosen = order[Math.max(0, Math.min(order.length - 1, place < 0 ? 0 : place + by))];
    const [, , start, duration] = bars[chosen];
    if (start + duration < view.from || start > view.to) {
      const half = (view.to - view.from) / 2;
      show(start - half, start + half);
    } else draw();
    status.textContent = describeBar(bars[chosen]).replace("\n", ": ");
  }

  function showChosen() {
    if (chosen < 0) return;
    const [, , start, duration] = bars[chosen];
    show(start - duration * 0.2, start + duration * 1.2);
    status.textContent = describeBar(bars[chosen]).replace("\n", ": ");
  }

  function draw() {
    const { width } = view, scale = width / (view.to - view.from);
    const nodes = [];
    const ticks = ticksOf(view.from, view.to, Math.max(2, Math.round(width / 140)));
    for (const tick of ticks)
      nodes.push(
        makeShape("line", { x1: (tick - view.from) * scale, x2: (tick - view.from) * scale,
                            y1: AXIS - 6, y2: height, stroke: "var(--grid)" }),
        makeShape("text", { x: Math.min((tick - view.from) * scale + 3, width - 60),
                            y: 14 }, formatTick(tick, ticks[1] - ticks[0])));
    tops.forEach((top, lane) => {
      if (top !== null)
        nodes.push(makeShape("text", { x: 4, y: top + 14, class: "lane" },
          shortenName(timeline.lanes[lane], Math.floor(width / 7.5))));
    });
    bars.forEach((bar, index) => {
      const [lane, row, start, duration, name, kind] = bar;
      const left = Math.max((start - view.from) * scale, 0);
      const right = Math.min((start + duration - view.from) * scale, width);
      if (right < 0 || left > width || right - left < 0) return;
      const length = Math.max(right - left, 0.5), y = tops[lane] + LANE_HEAD + row * ROW;
      const letters = Math.floor((length - 6) / 6.9);
      nodes.push(makeShape("g", { class: index === chosen ? "bar chosen" : "bar" },
        makeShape("rect", { x: left, y, width: length, height: ROW - 2, fill: fills[kind],
                            stroke: length > 3 ? "var(--paper)" : null, "stroke-width": 0.8 }),
        letters < 3 ? null : makeShape("text", { x: left + 3, y: y + 12 },
                                       shortenName(timeline.names[name], letters, pieces)),
        makeShape("title", {}, describeBar(bar))));
    });
    content.replaceChildren(...nodes);
    status.textContent = `${formatTime(view.from)} to ${formatTime(view.to)} of `
      + `${formatTime(iteration.total_ns)}`
      + (iteration.left_out ? `; the ${iteration.left_out} shortest bars are left out` : "");
  }

  function drawPicture(width) {
    view.width = width;
    svg = makePicture(width, height, `Timeline of iteration ${iteration.number}. ${KEYS_HELP}`,
                      { class: "timeline", tabindex: 0, role: "application" });
    fills = timeline.kinds.map((_, place) => makePattern(svg, place, colors[place]));
    content = makeShape("g");
    choice = makeShape("rect", { y: 0, height, fill: COLORS[0], "fill-opacity": 0.2 });
    svg.append(content);
    listen();
    draw();
    return svg;
  }

  function listen() {
    const placeOf = (event) => {
      const box = svg.getBoundingClientRect();
      const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      return part * view.width;
    };
    let start = null;
    svg.addEventListener("pointerdown", (event) => {
      start = placeOf(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = placeOf(event);
      fill(choice, { x: Math.min(start, now), width: Math.abs(now - start) }, []);
      svg.append(choice);
    });
    const release = (event) => {
      if (start === null) return;
      const [left, right] = [start, placeOf(event)].sort((a, b) => a - b);
      const scale = (view.to - view.from) / view.width;
      start = null;
      choice.remove();
      if (event.type === "pointerup" && right - left > 4)
        show(view.from + left * scale, view.from + right * scale);
    };
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("dblclick", showAll);
    const keys = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: showAll,
      ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25),
      ArrowUp: () => step(-1), ArrowDown: () => step(1), Enter: showChosen,
    };
    svg.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  function drawLegend() {
    const used = new Set(bars.map((bar) => bar[5]));
    legend.replaceChildren(...timeline.kinds.flatMap((kind, place) => {
      if (!used.has(place)) return [];
      const swatch = makeSwatch(18, 14);
      swatch.append(makeShape("g", { class: "bar" }, makeShape("rect", { width: 18, height: 14,
        fill: makePattern(swatch, place, colors[place]) })));
      return [makeElement("li", {}, swatch, kind)];
    }));
  }

  const numbers = timeline.iterations.map((each) => each.number);
  const picker = makePicker(timeline);
  const place = makeElement("div");

  function open(number) {
    chooseIteration(number);
    place.replaceChildren(makeFitted(drawPicture));
  }

  picker.addEventListener("change", () => open(Number(picker.value)));
  const move = (by) => {
    const at = numbers.indexOf(iteration.number) + by;
    if (at >= 0 && at < numbers.length) open(numbers[at]);
  };
  open(timeline.landmarks.chosen ?? timeline.landmarks.median);
  const choices = makeElement("div", { class: "tools" },
    makeElement("label", {}, "iteration ", picker),
    makeButton("previous", () => move(-1)), makeButton("next", () => move(1)),
    ...Object.entries(timeline.landmarks).map(([name, number]) =>
      makeButton(name, () => open(number))));
  const tools = makeElement("div", { class: "tools" },
    makeButton("zoom in", () => zoom(0.5)), makeButton("zoom out", () => zoom(2)),
    makeButton("◀ earlier", () => pan(-0.25)), makeButton("later ▶", () => pan(0.25)),
    makeButton("all", showAll), status);
  return [makeElement("div", {}, choices, tools, which, place, legend), open];
}

function nearestOf(iterations, number) {
  return iterations.reduce((best, each) =>
    Math.abs(each.number - number) < Math.abs(best.number - number) ? each : best);
}

function describeIteration(timeline, iteration) {
  const marks = Object.entries(timeline.landmarks)
    .filter(([, number]) => number === iteration.number).map(([name]) => name);
  return [`${iteration.number}: ${formatTime(iteration.total_ns)}`, ...marks,
          iteration.disturbed ? `disturbed: ${iteration.disturbed}` : null]
    .filter(Boolean).join(", ");
}

// A choice of the iterations, with how long each took.
function makePicker(timeline) {
  return makeElement("select", {}, ...timeline.iterations.map((each) =>
    makeElement("option", { value: each.number }, describeIteration(timeline, each))));
}
