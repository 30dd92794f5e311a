// Talks to the service. Each request carries the key, when there is one; each failure is a Problem with its fix.

const KEY = "docvino-key";
const ANSWER_MS = 30_000;
const FILE_MS = 600_000; // a result may have to be written first: hundreds of pages as PDF
const SILENCE_MS = 60_000; // of the progress, before it is asked for anew

export class Problem extends Error {
  /** retryAfter: seconds until the service wants to be asked again, or null */
  constructor(status, message, fix, requestId = "", retryAfter = null) {
    super(message);
    this.status = status;
    this.fix = fix;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }
}

// A browser may forbid storage; the key then lives as long as this page.
let key = "";
try {
  key = sessionStorage.getItem(KEY) ?? "";
} catch {
  key = "";
}

export function useKey(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    return;
  }
}

// A service that refuses a large file may hang up before the browser has read why.
function brokenOff() {
  return new Problem(0, "The upload was broken off.", "The file may be larger than the service takes, or the service has ended.");
}

function withKey(headers = {}) {
  return key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
}

function unreachable() {
  return new Problem(0, "The service does not answer.", "See whether docvino serve still runs, then try again.");
}

/** The Problem in an answer that is none of 2xx. `text` may be anything: a proxy answers in its own words. */
function problemOf(status, text, retryAfter) {
  let said = {};
  try {
    said = JSON.parse(text).error ?? {};
  } catch {
    said = {};
  }
  const seconds = Number(retryAfter);
  return new Problem(
    status,
    typeof said.message === "string" ? said.message : `The service answered ${status}.`,
    typeof said.fix === "string" ? said.fix : status === 413 ? "Send a smaller file, or raise the limit." : "Try again.",
    typeof said.request_id === "string" ? said.request_id : "",
    retryAfter && Number.isFinite(seconds) ? seconds : null,
  );
}

async function request(path, { method = "GET", limitMs = ANSWER_MS, signal = null } = {}) {
  const limit = AbortSignal.timeout(limitMs);
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: withKey(),
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (!response.ok) {
    const text = await response.text().catch(() => "");
    throw problemOf(response.status, text, response.headers.get("Retry-After"));
  }
  return response;
}

const at = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

export const about = async () => (await request("version")).json();
export const listJobs = async () => (await request("v1/jobs")).json();
export const getJob = async (id, signal) => (await request(at(id), { signal })).json();
export const getPage = async (id, page, signal) => (await request(at(id, `/pages/${page}`), { signal })).json();
export const getImage = async (id, page, signal) =>
  (await request(at(id, `/pages/${page}/image`), { signal, limitMs: FILE_MS })).blob();
export const getText = async (id, format, signal) =>
  (await request(at(id, `/result?format=${format}`), { signal, limitMs: FILE_MS })).text();
export const getFile = async (id, format) =>
  (await request(at(id, `/result?format=${format}`), { limitMs: FILE_MS })).blob();
export const cancelJob = (id) => request(at(id, "/cancel"), { method: "POST" });
export const deleteJob = (id) => request(at(id), { method: "DELETE" });

/** Sends one file. `fields` are options of the call; `onProgress` gets the part that was sent, 0 to 1. */
export function upload(file, fields, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("file", file, file.name);
    const call = new XMLHttpRequest(); // fetch does not tell how much was sent
    call.open("POST", "v1/jobs");
    for (const [name, value] of Object.entries(withKey())) call.setRequestHeader(name, value);
    call.timeout = FILE_MS;
    call.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    });
    call.addEventListener("load", () => {
      if (call.status < 200 || call.status > 299) {
        reject(problemOf(call.status, call.responseText, call.getResponseHeader("Retry-After")));
        return;
      }
      try {
        resolve(JSON.parse(call.responseText));
      } catch {
        reject(new Problem(call.status, "The service's answer is no JSON.", "See what stands between it and you."));
      }
    });
    for (const name of ["error", "timeout"]) call.addEventListener(name, () => reject(brokenOff()));
    call.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    signal.addEventListener("abort", () => call.abort());
    call.send(form);
  });
}

/**
 * Progress of a job as it happens: yields {name, data}. Ends with the job, when nothing came for a minute, or when
 * the connection breaks. EventSource cannot send a key, so the stream is read here.
 */
export async function* events(id, signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await fetch(at(id, "/events"), {
      headers: withKey({ Accept: "text/event-stream" }),
      cache: "no-store",
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (!response.ok || !response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = eventOf(part);
        if (event) yield event;
      }
    }
  } catch {
    return; // whoever listens asks for the job next, and is told then what is wrong
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

function eventOf(part) {
  let name = "message";
  const data = [];
  for (const line of part.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  if (!data.length) return null;
  try {
    return { name, data: JSON.parse(data.join("\n")) };
  } catch {
    return null;
  }
}
