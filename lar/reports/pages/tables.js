// Tables that are sorted by a click on a heading and filtered by a text.

const FIRST_ROWS = 25;

function compareValues(a, b, direction) {
  if (a === b) return 0;
  if (a === null) return 1; // what is not known comes last, in either direction
  if (b === null) return -1;
  return (a < b ? -1 : 1) * direction;
}

function makeCell(column, value, greatest) {
  const isNumber = column.digits !== null;
  if (value === null)
    return makeElement("td", { class: isNumber ? "number unknown" : "unknown" }, "N/A");
  if (!isNumber) return makeElement("td", { title: value }, String(value));
  if (typeof value === "string") return makeElement("td", { class: "number" }, value);
  const text = column.digits < 0 ? formatAny(value) : formatNumber(value, column.digits);
  const cell = makeElement("td", { class: "number" }, text);
  if (column.name === "share" && greatest > 0) {
    const part = (100 * value) / greatest;
    cell.style.background =
      `linear-gradient(to left, var(--share) ${part}%, transparent ${part}%)`;
  }
  return cell;
}

// A table of `{columns: [[name, unit, digits]], rows, total, missing, order, marks}`, sorted as it
// comes; a row's mark is the class that colours it.
function makeTable(table, name) {
  if (!table.rows.length) return makeNote(`There are no ${name}.`);
  const columns = table.columns.map(([title, unit, digits]) => ({ name: title, unit, digits }));
  const place = columns.findIndex((column) => column.name === "share");
  const greatest = place < 0 ? 0 : Math.max(...table.rows.map((row) => row[place] ?? 0));
  const texts = table.rows.map((row) =>
    row.filter((value) => typeof value === "string").join("\n").toLowerCase());
  const state = { by: -1, direction: -1, all: false };
  const body = makeElement("tbody");
  const count = makeElement("span", { class: "note", role: "status" });
  const search = makeElement("input", {
    type: "search", placeholder: "filter by any text", "aria-label": `filter ${name}`,
  });
  const more = makeButton("", () => { state.all = !state.all; draw(); });
  const headings = columns.map((column, index) => {
    const button = makeButton(column.name, () => {
      const first = column.digits === null ? 1 : -1;
      state.direction = state.by === index ? -state.direction : first;
      state.by = index;
      draw();
    });
    button.append(makeElement("small", {}, column.unit));
    return makeElement("th", { scope: "col", class: column.digits === null ? null : "number" },
                       button);
  });

  function draw() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = table.rows
      .map((row, index) => [row, index])
      .filter(([, index]) => wanted.every((word) => texts[index].includes(word)));
    if (state.by >= 0)
      found.sort(([a], [b]) => compareValues(a[state.by], b[state.by], state.direction));
    const shown = state.all ? found : found.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map(([row, place]) => makeElement("tr",
      { class: table.marks[place] || null },
      ...row.map((value, index) => makeCell(columns[index], value, greatest)))));
    headings.forEach((heading, index) => heading.setAttribute("aria-sort",
      state.by !== index ? "none" : state.direction > 0 ? "ascending" : "descending"));
    headings.forEach((heading, index) => {
      const mark = state.by !== index ? "" : state.direction > 0 ? " ▲" : " ▼";
      heading.firstChild.firstChild.textContent = columns[index].name + mark;
    });
    count.textContent = `${shown.length} of ${found.length} ${name}`
      + (table.total > table.rows.length ? `; the page has the first ${table.rows.length} of `
         + `${table.total} by ${table.order}` : "");
    more.textContent = state.all ? `show the first ${FIRST_ROWS}` : "show all";
    more.hidden = found.length <= FIRST_ROWS;
  }

  search.addEventListener("input", draw);
  draw();
  const parts = [
    makeElement("div", { class: "tools" }, search, more, count),
    makeElement("div", { class: "scroll", tabindex: 0 },
      makeElement("table", { class: "data" },
        makeElement("thead", {}, makeElement("tr", {}, ...headings)), body)),
  ];
  if (table.missing.length)
    parts.push(makeNote(`Not known of any of them: ${table.missing.join(", ")}.`));
  return makeElement("div", {}, ...parts);
}

// A table of few rows, as it comes.
function makeStaticTable(table) {
  const columns = table.columns.map(([name, unit, digits]) => ({ name, unit, digits }));
  const headings = columns.map((column) => makeElement("th", {
    scope: "col", class: column.digits === null ? null : "number",
  }, [column.name, column.unit].filter(Boolean).join(", ")));
  const rows = table.rows.map((row) => makeElement("tr", {},
    ...row.map((value, index) => makeCell(columns[index], value, 0))));
  return makeElement("table", { class: "few" },
    makeElement("thead", {}, makeElement("tr", {}, ...headings)),
    makeElement("tbody", {}, ...rows));
}

// Several tables of which one is shown, chosen by a button each.
function makeChoice(tables) {
  const place = makeElement("div");
  const buttons = tables.map(([name, make]) => makeButton(name, () => choose(name, make)));

  function choose(name, make) {
    buttons.forEach((button) => button.setAttribute("aria-pressed", button.textContent === name));
    place.replaceChildren(...make());
  }

  choose(...tables[0]);
  return [makeElement("div", { class: "tools" }, ...buttons), place];
}
