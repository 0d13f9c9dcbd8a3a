// Long names: a name without enough room loses its middle, and is shown in full on hover. Letters
// that distinguish names with the same begin and end stay.

// How many letters are kept at the head, at the tail, and where names differ.
const LONG = { head: 8, tail: 14, piece: 10 }, SHORT = { head: 3, tail: 9, piece: 7 };

function shownOf(name, pieces) {
  return pieces.map(([from, to]) => name.slice(from, to)).join("\0");
}

function joinPieces(pieces) {
  const joined = [];
  for (const [from, to] of pieces.sort((a, b) => a[0] - b[0])) {
    const last = joined.at(-1);
    // A gap of a few letters is not shorter than the dots that replace the letters.
    if (last && from <= last[1] + 4) last[1] = Math.max(last[1], to);
    else joined.push([from, to]);
  }
  return joined;
}

function commonLength(names) {
  const [first, ...rest] = names;
  let length = 0;
  while (length < first.length && rest.every((name) => name[length] === first[length])) length++;
  return length;
}

function groupBy(names, key) {
  const groups = new Map();
  for (const name of names) groups.set(key(name), [...(groups.get(key(name)) || []), name]);
  return [...groups.values()].filter((group) => group.length > 1);
}

// The pieces [from, to] of each name that are always shown: its head, its tail, and the place where
// it begins to differ from others with the same head. So different names stay different.
function piecesOf(names, { head, tail, piece } = pageWidth() < NARROW ? SHORT : LONG) {
  const differs = new Map(); // where each name begins to differ from a similar name
  const pieces = Object.assign(new Map(), { differs });
  for (const name of names)
    pieces.set(name, joinPieces(name.length <= head + tail + 2 ? [[0, name.length]]
      : [[0, head], [name.length - tail, name.length]]));
  const long = [...pieces.keys()].filter((name) => pieces.get(name).length > 1);
  const add = (group) => {
    const from = Math.max(0, commonLength(group) - 1);
    for (const name of group) {
      differs.set(name, from);
      pieces.set(name, joinPieces([...pieces.get(name),
                                   [from, Math.min(from + piece, name.length)]]));
    }
  };
  // On a narrow page, this piece is only added for names that would be equal otherwise.
  if (head === LONG.head) groupBy(long, (name) => name.slice(0, head)).forEach(add);
  for (let round = 0; round < 8; round++) {
    const alike = groupBy(pieces.keys(), (name) => shownOf(name, pieces.get(name)));
    if (!alike.length) break;
    alike.forEach(add);
  }
  return pieces;
}

// An element that holds a whole name, and shows as much of the name as there is room for.
function makeName(name, pieces) {
  const element = makeElement("span", { class: "name", title: name });
  let end = 0;
  for (const [from, to] of pieces.get(name) || [[0, name.length]]) {
    if (from > end)
      element.append(makeElement("span", { class: "gap" }, name.slice(end, from)));
    element.append(makeElement("span", {}, name.slice(from, to)));
    end = to;
  }
  return element;
}

// A name as text of at most `length` letters, for pictures: its pieces if they fit, else the part
// that distinguishes it from other names.
function shortenName(name, length, pieces) {
  if (name.length <= length) return name;
  const sizeOf = (parts) => parts.reduce((sum, [from, to]) => sum + to - from + 1, -1);
  let own = joinPieces((pieces && pieces.get(name) || []).map((piece) => [...piece]));
  if (!own.length || sizeOf(own) > length) {
    const tail = Math.floor((length - 1) / 2), head = length - 1 - tail;
    const start = pieces && pieces.differs.get(name);
    if (length > 3 && start + 1 >= head && start + 1 < name.length - tail)
      return `…${name.slice(start, start + length - 2)}…`;
    own = [[0, head], [name.length - tail, name.length]];
  }
  own[0][1] += Math.max(0, length - sizeOf(own));
  return joinPieces(own).map(([from, to]) => name.slice(from, to)).join("…");
}
