// The documents of the service: those sent from here and those it has already, with their progress.

import * as api from "./api.js";

const POLL_MS = 1500;
const LONGEST_WAIT_MS = 600_000; // for a place in the queue

const ACTIVE = new Set(["waiting", "sending", "queued", "running"]);

/** One document. `id` is the service's, null until it was accepted; `sent` is the part that was uploaded. */
class Job {
  constructor(name) {
    this.id = null;
    this.name = name;
    this.status = "waiting";
    this.total = null;
    this.done = 0;
    this.sent = 0;
    this.problem = null;
    this.stop = new AbortController();
  }

  get active() {
    return ACTIVE.has(this.status);
  }

  /** Progress in [0, 1], or null while nobody can say. */
  get part() {
    if (this.status === "sending") return this.sent;
    if (this.status === "waiting" || this.status === "queued" || !this.total) return null;
    return this.done / this.total;
  }

  get said() {
    const pages = (count) => (count === 1 ? "1 page" : `${count} pages`);
    if (this.status === "waiting") return "waiting to be sent";
    if (this.status === "sending") return this.sent < 1 ? `sending, ${Math.floor(100 * this.sent)} %` : "sent";
    if (this.status === "queued") return "in the queue";
    if (this.status === "running") return this.total ? `${this.done} of ${pages(this.total)}` : "begins";
    if (this.status === "done") return pages(this.total ?? this.done);
    return this.total ? `${this.status}, ${this.done} of ${pages(this.total)}` : this.status;
  }

  take(answer) {
    this.id = answer.id;
    this.name = answer.name ?? this.name;
    this.status = answer.status;
    this.total = answer.pages_total ?? null;
    this.done = answer.pages_done ?? 0;
    this.problem = answer.error ?? null;
  }
}

/** Events: "change" when a job looks different, "problem" with detail.error when the service refuses something. */
export class Jobs extends EventTarget {
  constructor() {
    super();
    this.all = []; // newest first
    this.sending = false;
    this.timer = 0;
    this.goneIds = new Set();
  }

  find(id) {
    return this.all.find((job) => job.id === id) ?? null;
  }

  /** Sends files one after the other. Returns their jobs. */
  add(files, fields) {
    const made = [...files].map((file) => Object.assign(new Job(file.name), { file, fields }));
    this.all.unshift(...made.toReversed());
    this.#changed();
    this.#send();
    return made;
  }

  async refresh() {
    clearTimeout(this.timer);
    try {
      const { jobs } = await api.listJobs();
      const known = new Map(this.all.filter((job) => job.id).map((job) => [job.id, job]));
      const listed = jobs.filter((answer) => !this.goneIds.has(answer.id)).map((answer) => {
        const job = known.get(answer.id) ?? new Job(answer.id);
        job.take(answer);
        return job;
      });
      this.all = [...this.all.filter((job) => !job.id), ...listed];
      this.#changed();
    } catch (error) {
      this.#refused(error);
      if (error.status === 401) return; // asked again with a key
    }
    if (this.all.some((job) => job.id && job.active)) this.timer = setTimeout(() => this.refresh(), POLL_MS);
  }

  /** A page of a job is read, or the job has ended: what the stream of its progress said. */
  progress(job, { name, data }) {
    if (name === "page") {
      job.status = "running";
      job.done = data.done;
      job.total = data.total;
    } else if (name === "end") {
      job.status = data.status;
    }
    this.#changed();
  }

  async cancel(job) {
    job.stop.abort();
    if (job.id) await this.#try(() => api.cancelJob(job.id));
    await this.refresh();
  }

  async remove(job) {
    job.stop.abort();
    if (job.id && !(await this.#try(() => api.deleteJob(job.id)))) return;
    if (job.id) this.goneIds.add(job.id);
    this.all = this.all.filter((other) => other !== job);
    this.#changed();
  }

  async #send() {
    if (this.sending) return;
    this.sending = true;
    for (;;) {
      const job = this.all.findLast((other) => other.status === "waiting");
      if (!job) break;
      await this.#sendOne(job);
      this.#changed();
    }
    this.sending = false;
    await this.refresh();
  }

  async #sendOne(job) {
    const deadline = Date.now() + LONGEST_WAIT_MS;
    for (;;) {
      job.status = "sending";
      try {
        const answer = await api.upload(job.file, job.fields, (part) => {
          job.sent = part;
          this.#changed();
        }, job.stop.signal);
        const name = job.name;
        job.take(answer);
        job.name = answer.name ?? name;
        job.file = null;
        this.all = this.all.filter((other) => other === job || other.id !== job.id); // a list may have told of it first
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.refresh(), POLL_MS);
        return;
      } catch (error) {
        if (job.stop.signal.aborted) {
          job.status = "cancelled";
          return;
        }
        if (error.status === 429 && Date.now() < deadline) {
          job.status = "queued"; // the service is full: it says when there may be room
          this.#changed();
          await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(60, Math.max(1, error.retryAfter ?? 5))));
          if (job.stop.signal.aborted) {
            job.status = "cancelled";
            return;
          }
          continue;
        }
        job.status = "failed";
        job.problem = { message: error.message, fix: error.fix, request_id: error.requestId };
        this.#refused(error);
        return;
      }
    }
  }

  async #try(call) {
    try {
      await call();
      return true;
    } catch (error) {
      if (error.status === 404) return true; // gone already
      this.#refused(error);
      return false;
    }
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  #refused(error) {
    this.dispatchEvent(new CustomEvent("problem", { detail: { error } }));
  }
}
