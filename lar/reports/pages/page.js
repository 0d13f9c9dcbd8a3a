"use strict";
// Functions that all parts of the page use: for figures, elements, numbers, colours and widths.

const figures = JSON.parse(document.getElementById("figures").textContent);
const SVG = "http://www.w3.org/2000/svg";

// Colours that most people can distinguish, lighter on a dark page. Text also says what a colour
// means. Text on a colour has the text colour at the same place of the second list.
const PLACES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const COLORS = PLACES.map((place) => `var(--c${place})`);
const GREY = "var(--c-grey)", ON_GREY = "var(--t-grey)";

function reportError(text, place) {
  const note = makeElement("p", { class: "error" }, `This part cannot be drawn: ${text}`);
  (place || document.body).append(note);
}

window.addEventListener("error", (event) => reportError(event.message));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function makeElement(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeShape(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Draws the result of a function into a section, if the page has this section.
function drawSection(name, draw) {
  const place = document.querySelector(`#${name} .body`);
  if (!place) return;
  try {
    place.append(...draw());
  } catch (error) {
    console.error(error);
    reportError(String(error), place);
  }
}

// Elements as wide as the page are drawn again when its width changes, and for printing.
const NARROWEST = 300, NARROW = 600, PAPER = 1000;
const fitting = new WeakMap();
let isPrinting = false, lastWidth = 0;

function pageWidth() {
  if (isPrinting) return PAPER;
  return Math.max(NARROWEST, document.querySelector("main").clientWidth);
}

// An element with what `draw` returns for the page's width, at most `widest`.
function makeFitted(draw, widest = Infinity) {
  const place = makeElement("div", { class: "fitted" });
  const fit = () => place.replaceChildren(...[draw(Math.min(pageWidth(), widest))].flat());
  fitting.set(place, fit);
  fit();
  return place;
}

function fitAll() {
  const width = pageWidth();
  if (width === lastWidth) return;
  lastWidth = width;
  for (const place of document.querySelectorAll(".fitted")) fitting.get(place)();
}

function printAs(paper) {
  isPrinting = paper;
  fitAll();
}

// The page's colour schemes: that of the system, light, or dark.
const SCHEMES = { "as the system": null, light: "not all", dark: "screen" };

function makeSchemeChoice() {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const dark = rules.find((rule) =>
    rule.media && rule.media.mediaText.includes("prefers-color-scheme"));
  const system = dark.media.mediaText;
  const choice = makeElement("select", {}, ...Object.keys(SCHEMES).map((name) =>
    makeElement("option", {}, name)));
  choice.addEventListener("change", () => {
    dark.media.mediaText = SCHEMES[choice.value] || system;
  });
  return makeElement("label", {}, "colours ", choice);
}

function finishPage() {
  const tools = document.querySelector("header .tools");
  if (tools) tools.append(makeSchemeChoice());
  lastWidth = pageWidth();
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(fitAll);
  });
  window.addEventListener("beforeprint", () => printAs(true));
  window.addEventListener("afterprint", () => printAs(false));
  document.documentElement.dataset.drawn = "yes";
}

// A number of things in words: `1 operator`, `2 operators`.
function countOf(count, noun) {
  return count === 1 ? `1 ${noun}` : `${count} ${noun}s`;
}

function makeNote(text) {
  return makeElement("p", { class: "note" }, text);
}

function makeButton(text, act) {
  const button = makeElement("button", { type: "button" }, text);
  button.addEventListener("click", act);
  return button;
}

const formats = new Map();

function formatNumber(value, digits) {
  if (value === null || value === undefined) return "N/A";
  const key = digits ?? "few";
  if (!formats.has(key))
    formats.set(key, new Intl.NumberFormat("en-US", digits === undefined
      ? { maximumSignificantDigits: 4 }
      : { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return formats.get(key).format(value);
}

// A number of any size: six digits of a fraction, but a whole part in full.
function formatAny(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1e6) return formatNumber(value, 0);
  return size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(6)));
}

function formatTime(nanoseconds) {
  if (nanoseconds >= 1e9) return `${formatNumber(nanoseconds / 1e9, 3)} s`;
  if (nanoseconds >= 1e6) return `${formatNumber(nanoseconds / 1e6, 3)} ms`;
  if (nanoseconds >= 1e3) return `${formatNumber(nanoseconds / 1e3, 2)} µs`;
  return `${formatNumber(nanoseconds, 0)} ns`;
}

let pictures = 0;

function makePicture(width, height, label, attributes) {
  const svg = makeShape("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
    ...attributes,
  });
  svg.dataset.name = `picture${pictures++}`;
  return svg;
}

// A small picture beside a name, which adds no information to the name.
function makeSwatch(width, height) {
  return makeShape("svg", { viewBox: `0 0 ${width} ${height}`, width, height,
                            "aria-hidden": "true", "data-name": `picture${pictures++}` });
}
