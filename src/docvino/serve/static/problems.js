// What is wrong, and what to do about it; a key that is missing is asked for.

import { Problem } from "./api.js";

const $ = (id) => document.getElementById(id);

export function told({ message, fix, request_id: requestId }) {
  const box = document.createElement("div");
  box.className = "problem";
  const cause = document.createElement("strong");
  cause.textContent = message;
  const remedy = document.createElement("span");
  remedy.textContent = fix ?? "";
  box.append(cause, remedy);
  if (requestId) {
    const small = document.createElement("small");
    small.textContent = `request ${requestId}`;
    box.append(small);
  }
  return box;
}

export function complain(error) {
  if (error.status === 401) return askForKey();
  const said = { message: error.message, fix: error.fix, request_id: error.requestId };
  const box = told(error instanceof Problem ? said : { message: `This page failed: ${error.message}`, fix: "Load it again." });
  const close = document.createElement("button");
  close.type = "button";
  close.className = "flat";
  close.textContent = "Close";
  close.addEventListener("click", () => box.remove());
  box.append(close);
  const same = [...$("problems").children].find((old) => old.firstChild.textContent === error.message);
  same?.remove();
  $("problems").prepend(box);
}

export function askForKey() {
  if ($("key").open) return;
  $("key-value").value = "";
  $("key").showModal();
}
