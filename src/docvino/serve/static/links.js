// Ties picture and text: what is pointed at or has the focus in one is lit up in both, and the keys go from one to the other.

function light(elements) {
  for (const element of document.querySelectorAll(".lit")) element.classList.remove("lit");
  for (const element of elements) element?.classList.add("lit");
}

/** Scrolls the pane, and nothing else, until the element is in sight. */
function reveal(pane, element) {
  if (!element) return;
  const outer = pane.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    pane.scrollTop += inner.top - outer.top - Math.max(8, (outer.height - inner.height) / 3);
  }
  if (inner.left < outer.left || inner.right > outer.right) pane.scrollLeft += inner.left - outer.left - 16;
}

/**
 * Ties the elements of one pane to those of another.
 *
 * selector: of the elements in `pane`; each has data-id. counterpart: from such an id to the element in `other`, or null
 */
export function tie(pane, selector, other, counterpart) {
  const both = (target) => {
    const here = target.closest?.(selector);
    return here && pane.contains(here) ? [here, counterpart(here.dataset.id)] : [];
  };
  const enter = (event) => {
    const [here, there] = both(event.target);
    light([here, there]);
    reveal(other, there);
  };
  pane.addEventListener("pointerover", enter);
  pane.addEventListener("focusin", enter);
  pane.addEventListener("pointerleave", () => light(both(document.activeElement)));
  pane.addEventListener("click", (event) => event.target.closest?.(selector)?.focus({ preventScroll: true }));
  pane.addEventListener("keydown", (event) => {
    const here = event.target.closest?.(selector);
    if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = [...pane.querySelectorAll(`${selector}:not([hidden])`)];
    const at = all.indexOf(here);
    const goal = {
      ArrowDown: all[at + 1],
      ArrowRight: all[at + 1],
      ArrowUp: all[at - 1],
      ArrowLeft: all[at - 1],
      Home: all[0],
      End: all.at(-1),
      Enter: counterpart(here.dataset.id),
    }[event.key];
    if (!goal) return;
    event.preventDefault();
    for (const element of goal.parentElement.querySelectorAll("[data-id][tabindex='0']")) element.setAttribute("tabindex", "-1");
    goal.setAttribute("tabindex", "0");
    goal.focus({ preventScroll: true });
    reveal(all.includes(goal) ? pane : other, goal);
  });
}
