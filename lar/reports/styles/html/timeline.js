// The timeline: rows of bars for each thread, zoomed by dragging, buttons and keys.

const ROW = 18, LANE_HEAD = 20, AXIS = 26, TIMELINE_WIDTH = 1180;
const SHORTEST_NS = 200; // no use in zooming further

function drawTimeline(timeline) {
  const height = timeline.lanes.reduce(
    (sum, lane) => sum + LANE_HEAD + lane.rows * ROW + 6, AXIS);
  const svg = makePicture(TIMELINE_WIDTH, height, "timeline", { class: "timeline", tabindex: 0 });
  const colors = timeline.kinds.map((_, place) => COLORS[place % COLORS.length]);
  const fills = timeline.kinds.map((_, place) => makePattern(svg, place, colors[place] + "b0"));
  const content = makeShape("g"), choice = makeShape("rect", { y: 0, height, fill: "#0072b233" });
  svg.append(content);
  const view = { from: 0, to: timeline.total_ns };
  const status = makeElement("span", { class: "note", role: "status" });

  function show(from, to) {
    const length = Math.min(Math.max(to - from, SHORTEST_NS), timeline.total_ns);
    view.from = Math.max(0, Math.min(from, timeline.total_ns - length));
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

  function draw() {
    const scale = TIMELINE_WIDTH / (view.to - view.from);
    const nodes = [];
    const ticks = ticksOf(view.from, view.to, 8);
    for (const tick of ticks)
      nodes.push(
        makeShape("line", { x1: (tick - view.from) * scale, x2: (tick - view.from) * scale,
                            y1: AXIS - 6, y2: height, stroke: "var(--grid)" }),
        makeShape("text", { x: Math.min((tick - view.from) * scale + 3, TIMELINE_WIDTH - 60),
                            y: 14 }, formatTick(tick, ticks[1] - ticks[0])));
    let top = AXIS;
    for (const lane of timeline.lanes) {
      nodes.push(makeShape("text", { x: 4, y: top + 14, class: "lane" }, lane.name));
      for (const [row, start, duration, name, kind] of lane.bars) {
        const left = Math.max((start - view.from) * scale, 0);
        const right = Math.min((start + duration - view.from) * scale, TIMELINE_WIDTH);
        if (right < 0 || left > TIMELINE_WIDTH || right - left < 0) continue;
        const width = Math.max(right - left, 0.5), y = top + LANE_HEAD + row * ROW;
        const letters = Math.floor((width - 6) / 6);
        const text = timeline.names[name];
        nodes.push(makeShape("g", { class: "bar" },
          makeShape("rect", { x: left, y, width, height: ROW - 2, fill: fills[kind],
                              stroke: width > 3 ? "var(--paper)" : null, "stroke-width": 0.8 }),
          letters < 3 ? null : makeShape("text", { x: left + 3, y: y + 12 },
            text.length > letters ? `${text.slice(0, letters - 1)}…` : text),
          makeShape("title", {}, `${text}\n${timeline.kinds[kind]}, ${formatTime(duration)}, `
                                 + `${formatTime(start)} after the start`)));
      }
      top += LANE_HEAD + lane.rows * ROW + 6;
    }
    content.replaceChildren(...nodes);
    status.textContent = `${formatTime(view.from)} to ${formatTime(view.to)} of `
      + `${formatTime(timeline.total_ns)}`;
  }

  const placeOf = (event) => {
    const box = svg.getBoundingClientRect();
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return part * TIMELINE_WIDTH;
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
    const scale = (view.to - view.from) / TIMELINE_WIDTH;
    start = null;
    choice.remove();
    if (event.type === "pointerup" && right - left > 4)
      show(view.from + left * scale, view.from + right * scale);
  };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  const showAll = () => show(0, timeline.total_ns);
  svg.addEventListener("dblclick", showAll);
  const keys = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: showAll,
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25),
  };
  svg.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  draw();
  const legend = makeElement("ul", { class: "legend beside" },
    ...timeline.kinds.map((kind, place) => {
      const swatch = makePicture(18, 14, kind, { "aria-hidden": "true" });
      swatch.append(makeShape("rect", { width: 18, height: 14,
        fill: makePattern(swatch, place, colors[place] + "b0") }));
      return makeElement("li", {}, swatch, kind);
    }));
  const tools = makeElement("div", { class: "tools" },
    makeButton("zoom in", () => zoom(0.5)), makeButton("zoom out", () => zoom(2)),
    makeButton("◀ earlier", () => pan(-0.25)), makeButton("later ▶", () => pan(0.25)),
    makeButton("all", showAll), status);
  return makeElement("div", {}, tools, svg, legend);
}
