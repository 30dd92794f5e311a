// What each label of the layout models is for a reader. The same sets as docvino/render/flow.py; a test compares them.

export const LABELS = {
  "title": ["title", "doc_title", "paragraph_title", "abstract_title", "reference_title", "content_title"],
  "caption": ["figure_caption", "table_caption", "figure_title", "table_title", "chart_title"],
  "picture": ["figure", "image", "chart", "seal"],
  "furniture": ["header", "footer", "header_image", "footer_image", "number", "footnote", "aside_text"],
  "lines": ["content", "algorithm"]
};

// In the order of the legend. "lines" are text whose line breaks mean something, with the colour of text.
export const KINDS = {
  title: "Title",
  text: "Text",
  table: "Table",
  formula: "Formula",
  picture: "Picture",
  caption: "Caption",
  furniture: "Margins",
};

const FORMULAS = new Set(["equation", "formula", "display_formula", "inline_formula", "formula_number"]);
const KIND_OF = new Map(Object.entries(LABELS).flatMap(([kind, labels]) => labels.map((label) => [label, kind])));

/** The kind of a block, one of KINDS: what it was read as counts more than its label. */
export function kindOf(block) {
  const kind = KIND_OF.get(block.label);
  if (kind === "furniture") return kind;
  if (block.format === "html" || block.label === "table") return "table";
  if (block.format === "latex" || FORMULAS.has(block.label)) return "formula";
  return kind === undefined || kind === "lines" ? "text" : kind;
}

export function keepsLines(block) {
  return LABELS.lines.includes(block.label);
}

/** Whether the block's pixels are shown. As `is_picture` of docvino/render/flow.py. */
export function isPicture(block) {
  if (!LABELS.picture.includes(block.label)) return false;
  if (block.label === "figure" || !block.content.trim()) return true;
  return block.layout_score !== null && block.format !== "html";
}

/** "97 %", or "not said" where nothing was read. */
export function percent(confidence) {
  return confidence === null || confidence === undefined ? "not said" : `${Math.floor(100 * confidence)} %`;
}
