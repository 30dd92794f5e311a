// One page as text: its blocks in reading order. Only text nodes are made of what a model wrote, never markup.

import { formula, split } from "./formulas.js";
import { isPicture, keepsLines, kindOf, percent } from "./labels.js";

const BULLETS = "•●▪■◦‣·";
const MOST_SPAN = 1000; // what HTML allows

function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** The blocks of a page as elements. `cut(polygon)` gives a canvas with that part of the page's picture, or null. */
export function render(page, cut) {
  const places = new Map(page.blocks.map((block) => [block.id, block.polygons[0]]));
  const inCells = new Set(page.blocks.flatMap((block) => block.cells.flatMap((cell) => cell.figures)));
  const figure = (id) => (places.has(id) ? cut(places.get(id)) : null);
  return page.blocks.map((block, index) => {
    const kind = kindOf(block);
    const element = make("div", "block");
    element.dataset.id = block.id;
    element.dataset.kind = kind;
    element.tabIndex = index ? -1 : 0;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", nameOf(block));
    const chip = make("span", "chip", `${index + 1} ${block.label} ${confidenceOf(block)}`.trimEnd());
    chip.setAttribute("aria-hidden", "true");
    element.append(chip);
    if (isPicture(block) && !inCells.has(block.id)) {
      const picture = cut(block.polygons[0]);
      if (picture) element.append(make("figure", "", picture));
    }
    if (block.label !== "figure") element.append(...body(block, page, figure));
    if (element.childElementCount === 1) element.append(make("p", "quiet", nothing(block)));
    for (const warning of block.warnings) element.append(make("p", "warning", warning));
    return element;
  });
}

export function nameOf(block) {
  return `Block ${block.order + 1}, ${block.label}, confidence ${percent(block.confidence)}`;
}

function confidenceOf(block) {
  return block.confidence === null ? "" : percent(block.confidence);
}

function nothing(block) {
  if (block.finish === "blank") return "No ink here.";
  return block.label === "figure" ? "A picture." : "Nothing was read here.";
}

function body(block, page, figure) {
  const content = block.content;
  if (!content.trim()) return [];
  if (block.format === "html") return [table(block, figure)];
  if (block.format === "latex") {
    return content.split("\n\n").filter((latex) => latex.trim()).map((latex) => make("p", "", formula(latex, true)));
  }
  if (block.label === "table") return [rows(content)];
  const kind = kindOf(block);
  if (kind === "title") return [make(`h${levelOf(block, page)}`, "", ...inline(joined(content)))];
  if (kind === "caption") return [make("p", "caption", ...inline(joined(content)))];
  if (keepsLines(block)) return [make("p", "lines", ...inline(content))];
  return paragraphs(content);
}

/** Headings of pages begin below those of this page: the document's title is an h3. */
function levelOf(block, page) {
  const first = page.page_index === 0 && block.order === 0;
  const top = block.label === "doc_title" || (block.label === "title" && first);
  return Math.min(6, 3 + (block.level ?? (top ? 0 : 1)));
}

function joined(content) {
  return content.replace(/\s*\n\s*/g, (gap, at) => (/[\u3040-\u30ff\u3400-\u9fff]/.test(content[at - 1]) ? "" : " "));
}

function paragraphs(content) {
  const made = [];
  let nodes = [];
  const end = () => {
    const first = nodes[0];
    const isItem = typeof first === "string" && BULLETS.includes(first.trimStart()[0] ?? " ");
    if (isItem) nodes[0] = first.trimStart().slice(1).trimStart();
    if (nodes.some((node) => typeof node !== "string" || node.trim())) made.push(make("p", isItem ? "item" : "", ...nodes));
    nodes = [];
  };
  for (const piece of split(content)) {
    if (piece.latex !== undefined) {
      nodes.push(formula(piece.latex, piece.display));
      continue;
    }
    piece.text.split("\n").forEach((line, index) => {
      if (index) end();
      if (line) nodes.push(line);
    });
  }
  end();
  return made;
}

function inline(text) {
  return split(text).map((piece) => piece.text ?? formula(piece.latex, piece.display));
}

/** A table whose structure is not known: lines of cells with tabs between them. */
function rows(content) {
  const lines = content.split("\n").filter((line) => line.trim());
  return framed(lines.map((line) => line.split("\t").map((text) => make("td", "", ...inline(text)))));
}

function table(block, figure) {
  if (!block.cells.length) {
    return framed([[make("td", "", block.content.replace(/<[^>]*>/g, " ").trim())]]);
  }
  const height = Math.max(...block.cells.map((cell) => cell.row)) + 1;
  const lines = Array.from({ length: height }, () => []);
  for (const cell of [...block.cells].sort((one, other) => one.column - other.column)) {
    const element = make("td", "", ...inline(cell.text));
    element.rowSpan = Math.min(MOST_SPAN, cell.row_span);
    element.colSpan = Math.min(MOST_SPAN, cell.column_span);
    if (cell.confidence !== null) {
      element.dataset.confidence = cell.confidence;
      element.title = `confidence ${percent(cell.confidence)}`;
    }
    if (cell.polygon) element.dataset.polygon = cell.polygon.map((point) => point.join(",")).join(" ");
    for (const id of cell.figures) {
      const picture = figure(id);
      if (picture) element.append(picture);
    }
    lines[cell.row].push(element);
  }
  return framed(lines);
}

/** A wide table scrolls by itself and leaves the page where it is. */
function framed(lines) {
  const element = make("table", "", make("tbody", "", ...lines.map((cells) => make("tr", "", ...cells))));
  return make("div", "frame", element);
}
