// Long names: the middle is left out where there is no room, the whole is shown on hover. What
// distinguishes a name from another that begins and ends as it does stays.

// How many letters are kept at the head, at the tail, and where names differ.
const LONG = { head: 8, tail: 14, piece: 10 }, SHORT = { head: 3, tail: 9, piece: 7 };

function shownOf(name, pieces) {
  return pieces.map(([from, to]) => name.slice(from, to)).join("\0");
}

function joinPieces(pieces) {
  const joined = [];
  for (const [from, to] of pieces.sort((a, b) => a[0] - b[0])) {
    const last = joined.at(-1);
    // A gap of few letters takes as much room as the dots that stand for it.
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

// The pieces [from, to] of each name that are always shown: its head, its tail, and where it begins
// to differ from others with that head, so that no two names read alike.
function piecesOf(names, { head, tail, piece } = pageWidth() < NARROW ? SHORT : LONG) {
  const differs = new Map(); // where each name begins to differ from one like it
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
  // Where there is little room, as few letters as distinguish them.
  if (head === LONG.head) groupBy(long, (name) => name.slice(0, head)).forEach(add);
  for (let round = 0; round < 8; round++) {
    const alike = groupBy(pieces.keys(), (name) => shownOf(name, pieces.get(name)));
    if (!alike.length) break;
    alike.forEach(add);
  }
  return pieces;
}

// An element with a whole name in it, which shows as much of it as its place has room for.
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

// A name as a text of at most so many letters, for pictures: its pieces if they have room, else what
// distinguishes it from other names.
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
