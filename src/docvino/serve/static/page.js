// The page: what is shown, what is asked for, and how picture and text are tied together.

import * as api from "./api.js";
import { typeset } from "./formulas.js";
import { Jobs } from "./jobs.js";
import { KINDS, kindOf } from "./labels.js";
import { tie } from "./links.js";
import { askForKey, complain, told } from "./problems.js";
import { render } from "./reading.js";
import { Sheet } from "./sheet.js";

// What the service calls a format: what people call it, and the ending of its file.
const FORMATS = {
  markdown: ["Markdown", "md"],
  html: ["HTML with pictures", "html"],
  docx: ["Word", "docx"],
  pdf: ["PDF, searchable", "pdf"],
  text: ["Text", "txt"],
  xlsx: ["Tables: Excel", "xlsx"],
  csv: ["Tables: CSV", "csv.zip"],
  json: ["JSON", "json"],
  res: ["JSON of PaddleOCR-VL", "res.zip"],
  png: ["Pictures with boxes", "png.zip"],
};
const AGAIN_MS = 1500; // before a stream of progress that broke is opened again
const SURE_MS = 4000; // to say that something is really to be deleted
const MOST_PIXELS = 16e6; // of a picture in memory; larger ones are shown smaller
const LONGEST_SIDE = 8192;

const ONE_COLUMN = matchMedia("(max-width: 800px)"); // as in page.css

const $ = (id) => document.getElementById(id);
const jobs = new Jobs();
const sheet = new Sheet($("sheet"));
const hiddenKinds = new Set();

let shown = null; // the job
let number = 0; // of its page, from 0
let page = null; // as the service gave it, once it is there
let work = new AbortController(); // what is under way for the page
let follow = new AbortController(); // the progress of the job
let texts = new Map(); // format -> promise of the job's whole text

// ---- documents

function showJobs() {
  const rows = jobs.all.map((job) => {
    job.row ??= makeRow(job);
    job.row.name.textContent = job.name;
    job.row.said.textContent = job.problem && !job.id ? job.problem.message : job.said;
    job.row.item.dataset.status = job.status;
    job.row.button.toggleAttribute("aria-current", job === shown);
    job.row.bar.hidden = !job.active;
    if (job.part === null) job.row.bar.removeAttribute("value");
    else job.row.bar.value = job.part;
    return job.row.item;
  });
  const list = $("jobs");
  if (rows.length !== list.childElementCount || rows.some((row, index) => row !== list.children[index])) {
    list.replaceChildren(...rows);
  }
  $("no-jobs").hidden = rows.length > 0;
  if (shown) showState();
}

function makeRow(job) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  const name = document.createElement("span");
  name.className = "job-name";
  const said = document.createElement("span");
  said.className = "job-said";
  const bar = document.createElement("progress");
  bar.setAttribute("aria-label", `Progress of ${job.name}`);
  button.append(name, said, bar);
  button.addEventListener("click", () => {
    select(job);
    if (ONE_COLUMN.matches) $("main").scrollIntoView();
  });
  item.append(button);
  return { item, button, name, said, bar };
}

let spoken = "";

/** What has changed about the document shown, aloud: each end, and about every tenth of the pages. */
function showState() {
  $("state").textContent = shown.said;
  $("total").textContent = shown.total ?? "?";
  $("number").max = shown.total ?? 1;
  $("before").disabled = number <= 0;
  $("after").disabled = shown.total === null || number >= shown.total - 1;
  $("cancel").hidden = !shown.active;
  if (!page && shown.active) sheet.clear(absence());
  else if (!shown.id && shown.problem) blank(shown.problem); // it was never accepted
  $("downloads").hidden = shown.status !== "done";
  const tenth = shown.total ? Math.floor((10 * shown.done) / shown.total) : 0;
  const now = shown.status === "running" ? `${shown.name} ${tenth}` : `${shown.name} ${shown.status}`;
  if (now !== spoken) $("live").textContent = `${shown.name}: ${shown.status}, ${shown.said}`;
  spoken = now;
}

function select(job, at = 0) {
  if (job === shown && at === number) return;
  if (job !== shown) {
    follow.abort();
    follow = new AbortController();
    texts = new Map();
    shown = job;
    watch(job, follow.signal);
  }
  $("welcome").hidden = true;
  $("view").hidden = false;
  $("name").textContent = job.name;
  document.title = `${job.name} · docvino`;
  number = at;
  showJobs();
  showPage();
}

/** Follows a job page by page until it ends. The stream may break: it is opened again while the job is active. */
async function watch(job, signal) {
  if (!job.active) return;
  while (!signal.aborted && job.active) {
    if (job.id) {
      for await (const event of api.events(job.id, signal)) {
        if (signal.aborted) return;
        jobs.progress(job, event);
        if (event.name === "page" && event.data.index === number && !page) showPage();
        if (event.name === "end") break;
      }
      if (signal.aborted) return;
      await jobs.refresh();
    }
    if (job.active) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
  if (!signal.aborted && !page) showPage();
  if (!signal.aborted) showText();
}

// ---- one page

async function showPage() {
  const job = shown;
  work.abort();
  work = new AbortController();
  const { signal } = work;
  page = null;
  $("number").value = number + 1;
  showState();
  if (job.id) history.replaceState(null, "", `#${encodeURIComponent(job.id)}/${number + 1}`);
  if (!job.id || job.status === "queued") return blank(job.problem);
  try {
    const [answer, picture] = await Promise.all([
      api.getPage(job.id, number, signal),
      api.getImage(job.id, number, signal).catch((error) => (signal.aborted ? Promise.reject(error) : null)),
    ]);
    const bitmap = picture ? await decode(picture, answer) : null;
    if (signal.aborted) return bitmap?.close();
    page = answer;
    for (const part of document.querySelectorAll(".tools, .halves")) part.hidden = false;
    $("failure").replaceChildren();
    sheet.show(page, bitmap);
    $("reading").replaceChildren(...notes(page), ...render(page, (polygon) => sheet.cut(polygon)));
    $("reading").scrollTop = $("sheet").scrollTop = 0;
    showLegend();
    mark();
    showText();
  } catch (error) {
    if (signal.aborted) return;
    blank(error.status === 404 ? job.problem : null);
    if (error.status !== 404) complain(error);
  }
}

/** The picture, made smaller where it is too large to be held. */
async function decode(picture, { width_px: width, height_px: height }) {
  const scale = Math.min(1, Math.sqrt(MOST_PIXELS / (width * height)), LONGEST_SIDE / Math.max(width, height));
  const resized = { resizeWidth: Math.max(1, Math.round(width * scale)), resizeQuality: "high" };
  return createImageBitmap(picture, scale < 1 ? resized : {}).catch(() => null);
}

/** Why there is no page to be seen. */
function absence() {
  if (shown.status === "running") return `Page ${number + 1} is not read yet.`;
  return shown.active ? shown.said : "There is no such page.";
}

/** Without a page: a document that failed as a whole has nothing else to show. */
function blank(problem) {
  for (const part of document.querySelectorAll(".tools, .halves")) part.hidden = problem !== null;
  $("failure").replaceChildren(...(problem ? [told(problem)] : []));
  sheet.clear(absence());
  $("legend").replaceChildren();
  $("marked").textContent = "";
  $("markdown").textContent = "";
  $("reading").replaceChildren();
}

/** What is wrong with the page as a whole. */
function notes({ error, status, warnings, blocks }) {
  const said = warnings.map((text) => [text, "warning"]);
  if (error) said.unshift([error, "warning"]);
  else if (status === "empty" || !blocks.length) said.push(["Nothing was found on this page.", "quiet"]);
  return said.map(([text, style]) => Object.assign(document.createElement("p"), { className: style, textContent: text }));
}

function showLegend() {
  const counts = new Map();
  for (const block of page.blocks) counts.set(kindOf(block), (counts.get(kindOf(block)) ?? 0) + 1);
  const buttons = Object.entries(KINDS).filter(([kind]) => counts.has(kind)).map(([kind, name]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.kind = kind;
    button.textContent = `${name} ${counts.get(kind)}`;
    button.setAttribute("aria-pressed", String(!hiddenKinds.has(kind)));
    button.addEventListener("click", () => {
      if (!hiddenKinds.delete(kind)) hiddenKinds.add(kind);
      button.setAttribute("aria-pressed", String(!hiddenKinds.has(kind)));
      hideKinds();
    });
    return button;
  });
  const scale = document.createElement("span");
  scale.className = "scale";
  scale.textContent = "sure → unsure";
  scale.title = "The darker a box, the less sure its reading";
  $("legend").replaceChildren(...buttons, ...(buttons.length ? [scale] : []));
  hideKinds();
}

function hideKinds() {
  for (const element of document.querySelectorAll(".box, .block")) {
    element.toggleAttribute("hidden", hiddenKinds.has(element.dataset.kind));
  }
}

/** Marks what was read with less confidence than the slider says. */
function mark() {
  const limit = Number($("limit").value) / 100;
  $("limit-said").textContent = `${$("limit").value} %`;
  if (!page) return;
  let count = 0;
  for (const block of page.blocks) {
    const unsure = block.confidence !== null && block.confidence < limit;
    count += Number(unsure);
    sheet.box(block.id)?.classList.toggle("marked", unsure);
    textOf(block.id)?.classList.toggle("marked", unsure);
  }
  for (const cell of $("reading").querySelectorAll("td[data-confidence]")) {
    cell.classList.toggle("marked", Number(cell.dataset.confidence) < limit);
  }
  $("marked").textContent = count === 1 ? "1 block marked" : `${count} blocks marked`;
}

// ---- texts of the whole document, when it is done

async function showText() {
  const { signal } = work;
  $("markdown").textContent = "";
  if (!shown || !page) return;
  if (shown.status !== "done") {
    $("markdown").textContent = "The Markdown is there when the document is done.";
    return;
  }
  try {
    if (!$("markdown").hidden) {
      const text = await whole("markdown");
      if (!signal.aborted) $("markdown").textContent = text;
    } else if ($("reading").querySelector(".latex:not(.typeset)")) {
      const section = sectionOf(await whole("html"), page.page_index + 1);
      if (section && !signal.aborted) typeset($("reading"), section);
    }
  } catch (error) {
    if (!signal.aborted) complain(error);
  }
}

function whole(format) {
  if (!texts.has(format)) texts.set(format, api.getText(shown.id, format, follow.signal));
  return texts.get(format);
}

/** The part of the service's HTML that is one page, null where it has none; its texts are escaped, so no other tag can end it. */
function sectionOf(html, page) {
  const start = html.indexOf(`<section id="page-${page}">`);
  return start < 0 ? null : html.slice(start, html.indexOf("</section>", start));
}

// ---- picture and text, tied together

const textOf = (id) => $("reading").querySelector(`.block[data-id="${CSS.escape(id)}"]`);

tie($("sheet"), ".box", $("reading"), textOf);
tie($("reading"), ".block", $("sheet"), (id) => sheet.box(id));
$("reading").addEventListener("pointerover", (event) => sheet.point(event.target.closest("td")?.dataset.polygon ?? null));
$("reading").addEventListener("pointerleave", () => sheet.point(null));

// ---- what people do

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // without https browsers have no clipboard but this
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  $("copy").textContent = "Copied";
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
}

/** The page's text as one reads it: without labels, formulas as LaTeX. */
function readingText() {
  const blocks = page ? page.blocks.filter((block) => !hiddenKinds.has(kindOf(block))) : [];
  const rowsOf = ({ cells }) => {
    const rows = new Map();
    for (const cell of cells) rows.set(cell.row, [...(rows.get(cell.row) ?? []), cell.text.replace(/\s+/g, " ")]);
    return [...rows.values()].map((row) => row.join("\t")).join("\n");
  };
  return blocks.map((block) => (block.cells.length ? rowsOf(block) : block.content)).filter(Boolean).join("\n\n");
}

async function download(format, button) {
  const [, ending] = FORMATS[format];
  button.disabled = true;
  try {
    const url = URL.createObjectURL(await api.getFile(shown.id, format));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${shown.name.replace(/\.[^.]*$/, "")}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    closeMenu();
  } catch (error) {
    complain(error);
  }
  button.disabled = false;
}

for (const [format, [name]] of Object.entries(FORMATS)) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.dataset.format = format;
  button.addEventListener("click", () => download(format, button));
  $("formats").append(button);
}
$("downloads").addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeMenu();
});
document.addEventListener("click", (event) => {
  if (!$("downloads").contains(event.target)) $("downloads").open = false;
});

function closeMenu() {
  $("downloads").open = false;
  $("downloads").querySelector("summary").focus();
}

function take(files) {
  if (!files.length) return;
  const form = new FormData($("adding"));
  const fields = Object.fromEntries([...form].filter(([, value]) => typeof value === "string" && value.trim()));
  const added = jobs.add(files, fields);
  if (!shown?.active) select(added[0]);
}

$("files").addEventListener("change", () => {
  take($("files").files);
  $("files").value = "";
});
$("choose").addEventListener("click", () => $("files").click());
$("adding").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["dragenter", "dragover"]) {
  window.addEventListener(name, (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
}
window.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
window.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  take(event.dataTransfer.files);
});

const go = (to) => select(shown, Math.max(0, Math.min((shown.total ?? 1) - 1, to)));
$("before").addEventListener("click", () => go(number - 1));
$("after").addEventListener("click", () => go(number + 1));
$("number").addEventListener("change", () => {
  go(Math.round(Number($("number").value)) - 1 || 0);
  $("number").value = number + 1;
});
$("smaller").addEventListener("click", () => sheet.scale(-1));
$("larger").addEventListener("click", () => sheet.scale(1));
$("fit").addEventListener("click", () => sheet.scale(0));
$("boxes").addEventListener("change", () => $("sheet").classList.toggle("bare", !$("boxes").checked));
$("limit").addEventListener("input", mark);
new ResizeObserver(() => sheet.resize()).observe($("sheet"));

const tabs = ["reading", "markdown"];
function openTab(name) {
  for (const tab of tabs) {
    $(tab).hidden = tab !== name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    $(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
  }
  showText();
}
for (const [index, name] of tabs.entries()) {
  $(`tab-${name}`).addEventListener("click", () => openTab(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    openTab(tabs[1 - index]);
    $(`tab-${tabs[1 - index]}`).focus();
  });
}
$("copy").addEventListener("click", () => copy($("markdown").hidden ? readingText() : $("markdown").textContent));
$("cancel").addEventListener("click", () => jobs.cancel(shown));

let sure = 0;
$("delete").addEventListener("click", async () => {
  const button = $("delete");
  clearTimeout(sure);
  if (button.dataset.sure) {
    const gone = shown;
    calm();
    await jobs.remove(gone);
    if (gone === shown && !jobs.all.includes(gone)) leave();
    return;
  }
  button.dataset.sure = "yes";
  button.textContent = "Really delete?";
  sure = setTimeout(calm, SURE_MS);
});

function calm() {
  delete $("delete").dataset.sure;
  $("delete").textContent = "Delete";
}

function leave() {
  follow.abort();
  work.abort();
  shown = page = null;
  $("view").hidden = true;
  $("welcome").hidden = false;
  document.title = "docvino";
  history.replaceState(null, "", location.pathname);
  showJobs();
}

$("key-open").addEventListener("click", askForKey);
$("key-cancel").addEventListener("click", () => $("key").close());
$("key-form").addEventListener("submit", () => {
  api.useKey($("key-value").value);
  start();
});

jobs.addEventListener("change", showJobs);
jobs.addEventListener("problem", (event) => complain(event.detail.error));

/** Also after a key was given: what is there already, and what the address asks for. */
async function start() {
  await jobs.refresh();
  const [id, at] = location.hash.slice(1).split("/").map(decodeURIComponent);
  const job = jobs.find(id);
  if (job) select(job, Math.max(0, Number.parseInt(at, 10) - 1 || 0));
  else if (shown?.id) showPage();
  try {
    const { version, preset, device } = await api.about();
    $("about").textContent = [version, preset, device].filter(Boolean).join(" · ");
  } catch {
    $("about").textContent = "";
  }
}

start();
