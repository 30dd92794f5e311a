// Formulas in what was read: found as \(x\) and \[x\], shown as the MathML of the service's HTML, else as LaTeX.

const FORMULA = /(?<!\\)\\\(([\s\S]*?)(?<!\\)\\\)|(?<!\\)\\\[([\s\S]*?)(?<!\\)\\\]/g;
const MATHML = "http://www.w3.org/1998/Math/MathML";

// What may come over from the service's HTML. Everything else is left behind, its text kept.
const ELEMENTS = new Set([
  "math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "ms", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot",
  "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "mstyle", "mpadded",
  "mphantom", "menclose",
]);
const ATTRIBUTES = new Set([
  "display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "fence", "separator", "accent", "accentunder",
  "linethickness", "width", "height", "depth", "lspace", "rspace", "minsize", "maxsize", "form", "notation", "largeop",
  "movablelimits", "symmetric", "columnalign", "rowspacing", "columnspacing", "columnlines", "rowlines", "rowspan",
  "columnspan",
]);

/** Pieces of a text: {latex, display} for a formula, {text} for what stands between. */
export function split(content) {
  const pieces = [];
  let end = 0;
  for (const match of content.matchAll(FORMULA)) {
    if (match.index > end) pieces.push({ text: content.slice(end, match.index) });
    const latex = (match[1] ?? match[2]).trim();
    if (latex) pieces.push({ latex, display: match[1] === undefined });
    end = match.index + match[0].length;
  }
  if (end < content.length) pieces.push({ text: content.slice(end) });
  return pieces;
}

/** A formula as LaTeX; `typeset` may put MathML in its place. */
export function formula(latex, display) {
  const code = document.createElement("code");
  code.className = display ? "latex display" : "latex";
  code.textContent = latex;
  return code;
}

/**
 * Puts the MathML of the service's HTML into the formulas under `root`.
 *
 * html: the page's part of that HTML. It has one <math> or <code> for each formula, in reading order; when there are
 * not as many here, none is touched, as nobody could say which is which. Only formulas are parsed, as XML, which
 * neither runs nor loads anything.
 */
export function typeset(root, html) {
  const ours = [...root.querySelectorAll(".block:not([data-kind=furniture]) .latex")];
  const theirs = html.match(/<(math|code)\b[\s\S]*?<\/\1>/g) ?? [];
  if (ours.length !== theirs.length) return;
  const parser = new DOMParser();
  ours.forEach((code, index) => {
    const element = parser.parseFromString(theirs[index], "application/xml").documentElement;
    if (element.localName !== "math" || element.querySelector("parsererror")) return;
    const math = copied(element);
    math.setAttribute("aria-label", code.textContent);
    code.replaceChildren(math);
    code.classList.add("typeset");
  });
}

function copied(element) {
  const copy = document.createElementNS(MATHML, ELEMENTS.has(element.localName) ? element.localName : "mrow");
  for (const { name, value } of element.attributes) if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE) copy.append(copied(child));
  }
  return copy;
}
