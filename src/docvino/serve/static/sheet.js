// The picture of one page with a box for each block: outlined by kind, the darker the less sure it is.

import { kindOf } from "./labels.js";
import { nameOf } from "./reading.js";

const SVG = "http://www.w3.org/2000/svg";
const PALE = 0.07;
const DARK = 0.5;
const UNSURE_AT = 0.6; // confidence that is as dark as it gets
const MOST_ZOOM = 6;
const STEP = 1.25;

export class Sheet {
  /** root: the pane that scrolls */
  constructor(root) {
    this.root = root;
    this.zoom = 1;
    this.page = null;
    this.picture = null;
    this.paper = null;
    this.fine = null;
  }

  /** Shows a page. picture: ImageBitmap of it, or null where there is none; the places then lie on white paper. */
  show(page, picture) {
    this.picture?.close();
    this.page = page;
    this.picture = picture;
    const canvas = document.createElement("canvas");
    canvas.width = picture?.width ?? 1;
    canvas.height = picture?.height ?? 1;
    if (picture) canvas.getContext("2d").drawImage(picture, 0, 0);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Page ${page.page_index + 1} as it was scanned`);
    this.paper = document.createElement("div");
    this.paper.className = "paper";
    this.paper.style.aspectRatio = `${page.width_px} / ${page.height_px}`;
    this.paper.append(canvas, this.#boxes());
    this.root.replaceChildren(this.paper);
    this.resize();
  }

  clear(message = "") {
    this.picture?.close();
    this.picture = this.page = this.paper = null;
    const note = document.createElement("p");
    note.className = "quiet note";
    note.textContent = message;
    this.root.replaceChildren(note);
  }

  /** Part of the page as a canvas of its own, or null without a picture. */
  cut(polygon) {
    if (!this.picture) return null;
    const scale = this.picture.width / this.page.width_px;
    const xs = polygon.map(([x]) => x * scale);
    const ys = polygon.map(([, y]) => y * scale);
    const left = Math.max(0, Math.floor(Math.min(...xs)));
    const top = Math.max(0, Math.floor(Math.min(...ys)));
    const width = Math.min(this.picture.width, Math.ceil(Math.max(...xs))) - left;
    const height = Math.min(this.picture.height, Math.ceil(Math.max(...ys))) - top;
    if (width < 1 || height < 1) return null;
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    canvas.getContext("2d").drawImage(this.picture, left, top, width, height, 0, 0, width, height);
    canvas.style.width = `${Math.round((100 * width) / this.picture.width)}%`;
    return canvas;
  }

  /** by: steps of size, 0 for as large as fits. */
  scale(by) {
    this.zoom = by === 0 ? 1 : Math.min(MOST_ZOOM, Math.max(0.25, this.zoom * STEP ** by));
    this.resize();
  }

  resize() {
    if (!this.paper) return;
    const wide = this.root.clientWidth - 24;
    const high = (this.root.clientHeight - 24) * (this.page.width_px / this.page.height_px);
    this.paper.style.width = `${Math.max(80, Math.min(wide, Math.max(high, wide * 0.6)) * this.zoom)}px`;
  }

  box(id) {
    return this.paper?.querySelector(`[data-id="${CSS.escape(id)}"]`) ?? null;
  }

  /** Outlines one more place, such as a cell; null for none. points: "x,y x,y ..." in pixels of the page. */
  point(points) {
    this.fine?.toggleAttribute("hidden", !points);
    if (points) this.fine?.setAttribute("points", points);
  }

  #boxes() {
    const page = this.page;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${page.width_px} ${page.height_px}`);
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Places of the blocks; arrow keys go from one to the next, Enter to its text");
    page.blocks.forEach((block, index) => {
      const group = document.createElementNS(SVG, "g");
      group.setAttribute("class", "box");
      group.dataset.id = block.id;
      group.dataset.kind = kindOf(block);
      group.setAttribute("tabindex", index ? "-1" : "0");
      group.setAttribute("role", "button");
      group.setAttribute("aria-label", nameOf(block));
      group.style.setProperty("--dark", darkness(block.confidence));
      for (const polygon of block.polygons) {
        const shape = document.createElementNS(SVG, "polygon");
        shape.setAttribute("points", polygon.map((point) => point.join(",")).join(" "));
        group.append(shape);
      }
      svg.append(group);
    });
    this.fine = document.createElementNS(SVG, "polygon");
    this.fine.setAttribute("class", "fine");
    this.fine.toggleAttribute("hidden", true);
    svg.append(this.fine);
    return svg;
  }
}

function darkness(confidence) {
  if (confidence === null) return PALE;
  const unsure = Math.min(1, (1 - confidence) / (1 - UNSURE_AT));
  return (PALE + (DARK - PALE) * unsure).toFixed(3);
}
