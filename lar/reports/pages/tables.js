// Tables that are sorted by a click on a heading, filtered by a text, and as wide as the page.
// Columns without enough room are left out, and are shown in the details of each row.

const FIRST_ROWS = 25, FEW_ROWS = 6;
const SHORTEST_TEXT = 110, SHORTEST_ON_NARROW = 80, LONGEST_TEXT = 900; // pixels of a column of text
const SCROLLBAR = 17;
const ON_SCREEN = 13, ON_PAPER = 10; // pixels of letters
const GIVEN_ORDER = "the order given";

function compareValues(a, b, direction) {
  if (a === b) return 0;
  if (a === null) return 1; // unknown values come last, in either direction
  if (b === null) return -1;
  return (a < b ? -1 : 1) * direction;
}

function columnsOf(table) {
  return table.columns.map(([key, unit, digits, rank]) => {
    const name = key.replaceAll("_", " ");
    return { name, unit, digits, rank, title: unit ? `${name}, ${unit}` : name,
             isNumber: digits !== null };
  });
}

function formatCell(column, value) {
  if (value === null) return "N/A";
  if (!column.isNumber || typeof value === "string") return String(value);
  return column.digits < 0 ? formatAny(value) : formatNumber(value, column.digits);
}

// A cell; `look` has the largest share or, for a column of text, the width and pieces of names.
function makeCell(column, value, look = {}) {
  const text = formatCell(column, value);
  const kind = column.isNumber ? "number" : "text";
  if (value === null) return makeElement("td", { class: `${kind} unknown` }, text);
  if (!column.isNumber) {
    const content = makeElement("div", { class: "cell" }, look.button, makeName(text, look.pieces));
    if (look.width) content.style.maxWidth = `${look.width}px`;
    return makeElement("td", { class: kind, title: text }, content);
  }
  const cell = makeElement("td", { class: kind }, text);
  if (column.name === "share" && look.greatest > 0) {
    const part = (100 * value) / look.greatest;
    cell.style.background =
      `linear-gradient(to left, var(--share) ${part}%, transparent ${part}%)`;
  }
  return cell;
}

// The pieces of the names in each column of text.
function piecesOfColumns(columns, rows) {
  return columns.map((column, index) => column.isNumber ? null : piecesOf(
    new Set(rows.filter((row) => row[index] !== null).map((row) => String(row[index])))));
}

const measuring = document.createElement("canvas").getContext("2d");

function textWidth(text, weight = 400) {
  measuring.font = `${weight} 13px system-ui, sans-serif`;
  return measuring.measureText(text).width;
}

// The least width of a name: its pieces, and dots for each gap.
function leastWidth(name, pieces) {
  const shown = pieces.get(name) || [[0, name.length]];
  const text = shown.map(([from, to]) => name.slice(from, to)).join("");
  return textWidth(text) + 25 * (shown.length - 1) + 4 * shown.length;
}

// The columns that fit on the page, chosen by their rank, with their widths.
function fitColumns(columns, rows, pieces, room, all) {
  const isNarrow = room < 700;
  const padding = isNarrow ? 11 : 19, shortest = isNarrow ? SHORTEST_ON_NARROW : SHORTEST_TEXT;
  const headings = columns.map((column) => padding + Math.ceil(
    Math.max(...[...column.name.split(" "), column.unit].map((word) => textWidth(word, 600)))));
  const widths = columns.map((column, index) => {
    const texts = new Set(rows.map((row) => formatCell(column, row[index])));
    const most = Math.max(0, ...[...texts].map((text) => text.length));
    // Fewer letters may be wider.
    const longest = [...texts].filter((text) => text.length >= 0.7 * most);
    const content = Math.max(16, ...longest.map((text) => textWidth(text) + (index ? 3 : 20)));
    return Math.max(headings[index], padding + Math.ceil(content));
  });
  const least = columns.map((column, index) => column.isNumber ? widths[index]
    : Math.min(widths[index], Math.max(headings[index], index ? shortest : room / 4, padding + (index ? 3 : 20)
      + Math.max(0, ...rows.map((row) => row[index] === null ? 0
        : leastWidth(String(row[index]), pieces[index]))))));
  const chosen = new Set([0]);
  let left = room - least[0] - 2;
  const ranked = columns.map((_, index) => index).slice(1)
    .sort((a, b) => columns[a].rank - columns[b].rank || a - b);
  for (const index of ranked) {
    // Columns of the lowest rank stay, with names as short as needed.
    if (!columns[index].rank && !columns[index].isNumber)
      least[index] = Math.min(least[index], Math.max(shortest, left));
    else if (!all && least[index] > left && columns[index].rank) continue;
    chosen.add(index);
    left -= least[index];
  }
  const shown = columns.map((_, index) => index).filter((index) => chosen.has(index));
  const texts = shown.filter((index) => !columns[index].isNumber);
  for (; left < 0 && !all; left++) { // the widest names are shortened
    const widest = texts.reduce((a, b) => least[b] > least[a] ? b : a, texts[0]);
    if (widest === undefined || least[widest] < SHORTEST_ON_NARROW / 2) break;
    least[widest] -= 1;
  }
  const given = {};
  for (const index of texts) {
    const longest = Math.min(widths[index], all ? Math.max(300, least[index]) : LONGEST_TEXT);
    const more = all ? longest - least[index]
      : Math.max(0, Math.min(left, longest - least[index]));
    left -= more;
    given[index] = (least[index] + more - padding) * (isPrinting ? ON_PAPER / ON_SCREEN : 1);
  }
  return { shown, given };
}

function makeDetail(columns, row, width) {
  const entries = columns.map((column, index) => makeElement("div", {},
    makeElement("dt", {}, column.title), makeElement("dd", {}, formatCell(column, row[index]))));
  return makeElement("tr", { class: "detail" },
    makeElement("td", { colspan: width }, makeElement("dl", {}, ...entries)));
}

// A table of `{columns: [[name, unit, digits, rank]], rows, total, missing, order, marks}`, first in
// the given order; a row's mark is the CSS class that colours the row.
function makeTable(table, name) {
  if (!table.rows.length) return makeNote(`There are no ${name}.`);
  const columns = columnsOf(table), hasUnits = columns.some((column) => column.unit);
  const place = columns.findIndex((column) => column.name === "share");
  const greatest = place < 0 ? 0 : Math.max(...table.rows.map((row) => row[place] ?? 0));
  const piecesFor = new Map(); // by whether the page is narrow
  const texts = table.rows.map((row) =>
    row.filter((value) => typeof value === "string").join("\n").toLowerCase());
  const state = { by: -1, direction: -1, all: false, wide: false, open: new Set() };
  const head = makeElement("thead"), body = makeElement("tbody");
  const count = makeElement("span", { class: "note", role: "status" });
  const search = makeElement("input", {
    type: "search", placeholder: "filter by any text", "aria-label": `filter ${name}`,
  });
  const order = makeElement("select", { "aria-label": `sort ${name} by` },
    ...[GIVEN_ORDER, ...columns.map((column) => column.title)].map((title, index) =>
      makeElement("option", { value: index - 1 }, title)));
  const more = makeButton("", () => { state.all = !state.all; draw(); });
  const wide = makeButton("", () => { state.wide = !state.wide; draw(); });

  function sortBy(index) {
    const first = index < 0 || columns[index].isNumber ? -1 : 1;
    state.direction = state.by === index ? -state.direction : first;
    state.by = index;
    draw();
  }

  function makeHeading(index) {
    const column = columns[index], isSorted = state.by === index;
    const mark = !isSorted ? "" : state.direction > 0 ? " ▲" : " ▼";
    const button = makeButton(column.name + mark, () => {
      sortBy(index);
      head.querySelector(`[data-column="${index}"]`).focus();
    });
    button.dataset.column = index;
    if (hasUnits) button.append(makeElement("small", {}, column.unit));
    return makeElement("th", {
      scope: "col", class: column.isNumber ? "number" : null,
      "aria-sort": !isSorted ? "none" : state.direction > 0 ? "ascending" : "descending",
    }, button);
  }

  function makeRow(index, fit, pieces) {
    const row = table.rows[index];
    const line = makeElement("tr", { class: table.marks[index] || null });
    let detail = null;
    const show = () => {
      detail = makeDetail(columns, row, fit.shown.length);
      line.after(detail);
    };
    const button = makeElement("button", {
      type: "button", class: "open", "aria-expanded": state.open.has(index),
      "aria-label": `all figures of ${formatCell(columns[0], row[0])}`,
    });
    button.addEventListener("click", () => {
      const isOpen = state.open.delete(index);
      if (isOpen) detail.remove();
      else { state.open.add(index); show(); }
      button.setAttribute("aria-expanded", !isOpen);
    });
    line.append(...fit.shown.map((each) => makeCell(columns[each], row[each], {
      greatest, pieces: pieces[each], width: fit.given[each],
      button: each === 0 && fit.shown.length < columns.length ? button : null,
    })));
    const lines = [line];
    if (state.open.has(index))
      lines.push(detail = makeDetail(columns, row, fit.shown.length));
    return lines;
  }

  function draw() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = table.rows.map((_, index) => index)
      .filter((index) => wanted.every((word) => texts[index].includes(word)));
    if (state.by >= 0)
      found.sort((a, b) =>
        compareValues(table.rows[a][state.by], table.rows[b][state.by], state.direction));
    const shown = state.all ? found : found.slice(0, FIRST_ROWS);
    // On paper letters are smaller.
    const room = isPrinting ? PAPER * ON_SCREEN / ON_PAPER : pageWidth() - SCROLLBAR;
    const isNarrow = pageWidth() < NARROW;
    if (!piecesFor.has(isNarrow))
      piecesFor.set(isNarrow, piecesOfColumns(columns, table.rows));
    const pieces = piecesFor.get(isNarrow);
    const fit = fitColumns(columns, shown.map((index) => table.rows[index]), pieces, room,
                           state.wide);
    const narrow = state.wide ? fitColumns(columns, table.rows.slice(0, FIRST_ROWS), pieces, room)
      : fit;
    head.replaceChildren(makeElement("tr", {}, ...fit.shown.map(makeHeading)));
    body.replaceChildren(...shown.flatMap((index) => makeRow(index, fit, pieces)));
    order.value = state.by;
    count.textContent = `${shown.length} of ${found.length} ${name}`
      + (table.total > table.rows.length ? `; the page has the first ${table.rows.length} of `
         + `${table.total} by ${table.order}` : "");
    more.textContent = state.all ? `show the first ${FIRST_ROWS}` : "show all";
    more.hidden = found.length <= FIRST_ROWS;
    const hidden = columns.length - narrow.shown.length;
    wide.textContent = state.wide ? "fewer columns" : countOf(hidden, "more column");
    wide.hidden = !hidden;
  }

  search.addEventListener("input", draw);
  order.addEventListener("change", () => sortBy(Number(order.value)));
  const isShort = table.rows.length < FEW_ROWS; // all rows are visible at once
  const parts = [
    makeElement("div", { class: "tools" }, isShort ? null : search,
                isShort ? null : makeElement("label", {}, "sort by ", order), more, wide, count),
    makeElement("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
      makeElement("table", { class: "data", "aria-label": name }, head, body)),
  ];
  if (table.missing.length)
    parts.push(makeNote(`Unknown for every row: ${table.missing.join(", ")}.`));
  const whole = makeElement("div", {}, ...parts);
  whole.append(makeFitted(() => { draw(); return []; }));
  return whole;
}

