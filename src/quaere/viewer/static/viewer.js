// What pages do beyond links and forms: keys, the cursor of the charts, copying, and following a run that is written.
// Every page works without this file. Exported pages have no server: they ask for nothing, and what they would have
// asked for is in them (page_files.py).
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);

// ---------------------------------------------------------------------------------------------------------- charts

// The value of a line at a step, or at the last step before it that has one.
function valueAt(line, step) {
  let found = "none";
  for (const point of line.dataset.points.split(" ")) {
    const [at, value] = point.split(":");
    if (!point || Number(at) > step) break;
    found = value;
  }
  return found;
}

function showStep(step) {
  const slider = one("[data-step]");
  const curves = one("#curves");
  if (!slider || !curves) return;
  slider.value = step;
  const first = Number(curves.dataset.first), last = Number(curves.dataset.last);
  const left = Number(slider.dataset.left), right = Number(slider.dataset.right);
  const share = first === last ? 0.5 : (slider.value - first) / (last - first);
  const x = left + share * (right - left);
  one("[data-step-shown]").textContent = slider.value;
  for (const cursor of all("[data-cursor]")) {
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
  }
  for (const chart of all("[data-chart]")) {
    for (const line of all("[data-line]", chart)) {
      one(`[data-value="${line.dataset.line}"]`, chart).textContent = valueAt(line, Number(slider.value));
    }
  }
  const link = one("[data-step-link]");
  if (link) link.href = link.dataset.stepLink.replace("{step}", slider.value);
}

function stepUnder(event, drawing) {
  const slider = one("[data-step]"), curves = one("#curves");
  const box = drawing.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width * Number(slider.dataset.width);
  const left = Number(slider.dataset.left), right = Number(slider.dataset.right);
  const share = Math.min(1, Math.max(0, (x - left) / (right - left)));
  const first = Number(curves.dataset.first), last = Number(curves.dataset.last);
  return Math.round(first + share * (last - first));
}

document.addEventListener("input", (event) => {
  if (event.target.matches("[data-step]")) showStep(event.target.value);
});
document.addEventListener("pointermove", (event) => {
  const drawing = event.target.closest?.("[data-chart] > svg");
  if (drawing) showStep(stepUnder(event, drawing));
});

// ------------------------------------------------------------------------------------------------------------ keys

let chosen = -1;

function choose(move) {
  const entries = all("[data-entry]");
  if (!entries.length) return;
  chosen = Math.min(entries.length - 1, Math.max(0, chosen + move));
  markChosen();
  const target = one("a", entries[chosen]) ?? entries[chosen];
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target.focus();
}

// Unfold all parts of a kind; if all are unfolded, fold them.
function toggle(selector) {
  const parts = all(selector);
  const opens = parts.some((part) => !part.open);
  for (const part of parts) part.open = opens;
}

function markChosen() {
  all("[data-entry]").forEach((entry, number) => entry.toggleAttribute("data-chosen", number === chosen));
}

// A verdict on the chosen item of a list, or on the item of the page; "" takes it back.
async function giveVerdict(kind, item = one("[data-chosen][data-item]") ?? one("[data-item]:not([data-entry])")) {
  const address = document.body.dataset.verdicts;
  if (!item || !address) return;
  const said = await post(address, { id: item.dataset.item, kind });
  if (said) one("[data-said]").textContent = `${said.id}: ${said.kind || "no verdict"}`;
  await refresh();
}

async function post(address, body) {
  const reply = await fetch(address, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const said = await reply.json();
  if (!reply.ok) one("[data-said]").textContent = said.error;
  return reply.ok ? said : null;
}

document.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-ask]")) return;
  event.preventDefault();
  const said = await post("/ask", { question: event.target.question.value });
  if (said) location.assign(said.page);
});

const keys = {
  a: () => giveVerdict("accepted"),
  r: () => giveVerdict("rejected"),
  f: () => giveVerdict("flagged"),
  z: () => giveVerdict(""),
  e: () => toggle("[data-passage]"),
  t: () => toggle("[data-raw]"),
  j: () => choose(1),
  k: () => choose(-1),
  u: () => all(".crumbs a").at(-1)?.click(),
  "/": () => one("[data-find]")?.focus(),
  "?": () => one("#keys").showModal(),
  x: () => one("[data-chosen] input[type=checkbox]")?.click(),
  c: () => one("[data-compare]")?.requestSubmit(),
  "[": () => showStep(Number(one("[data-step]")?.value) - 1),
  "]": () => showStep(Number(one("[data-step]")?.value) + 1),
};

document.addEventListener("keydown", (event) => {
  const writes = event.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
  if (writes) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const link = all("[data-key]").find((element) => element.dataset.key === event.key);
  const act = link ? () => link.click() : Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("focusin", (event) => {
  const entry = event.target.closest("[data-entry]");
  if (entry) chosen = all("[data-entry]").indexOf(entry);
  if (entry) markChosen();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.matches("[data-help]")) one("#keys").showModal();
  if (button?.matches("[data-verdict]")) giveVerdict(button.dataset.verdict, button.closest("[data-item]"));
  if (button?.matches("[data-cancel]")) post(button.dataset.cancel, {}).then(refresh);
  if (button?.matches("[data-copy]")) {
    navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; });
  }
});

// ------------------------------------------------------------------------------------------------------------ live

// One request at a time: of two that overlap, the older reply could arrive last. A call meanwhile causes one more after it.
let refreshing = null, again = false;
function refresh() {
  again = true;
  refreshing ??= (async () => {
    try {
      while (again) {
        again = false;
        await renew();
      }
    } finally {
      refreshing = null;
    }
  })();
  return refreshing;
}

// Parts as the server wrote them: an unchanged part is not replaced, because text selected in it would be deselected.
const written = new Map(all("[data-live]").map((part) => [part.id, part.outerHTML]));

// Ask for the page again and put its parts in place. What a person has set stays: marks, open sections, the step, focus.
async function renew() {
  const reply = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!reply.ok) return;
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  const slider = one("[data-step]");
  const followed = !slider || slider.value === slider.max;
  const step = slider?.value;
  const marked = all("[data-compare] input:checked").map((box) => box.value);
  const folds = new Map(all("details[id]").map((part) => [part.id, part.open]));
  const focused = document.activeElement;
  const home = focused?.closest("[data-live]");
  for (const part of all("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || part.contains(one("[data-step]:active")) || written.get(part.id) === next.outerHTML) continue;
    written.set(part.id, next.outerHTML);
    if (part.matches("[data-grows]") && next.matches("[data-grows]")) {
      // What is there stays as it is, with what a person has opened in it.
      part.append(...[...next.children].slice(part.children.length).map((child) => document.adoptNode(child)));
      continue;
    }
    part.replaceWith(document.adoptNode(next));
  }
  for (const box of all("[data-compare] input[type=checkbox]")) box.checked = marked.includes(box.value);
  for (const part of all("details[id]")) part.open = folds.get(part.id) ?? part.open;
  if (home && !home.isConnected) {
    const place = focused.getAttribute("href");
    const replaced = focused.id ? document.getElementById(focused.id)
      : place && all("a").find((link) => link.getAttribute("href") === place);
    replaced?.focus();
  }
  if (chosen >= 0) markChosen();
  if (slider) showStep(followed ? one("[data-step]").max : step);
  prepare();
  if (document.body.dataset.changes && !fresh.body.dataset.changes) {  // it will not change any more
    delete document.body.dataset.changes;
    stream?.close();
    one("[data-live-mark]").hidden = true;
  }
}

// A browser opens only a few connections to one server, so hidden pages close theirs.
let stream = null;
function follow() {
  const address = document.body.dataset.changes;
  const mark = one("[data-live-mark]");
  if (!address) return;
  stream?.close();
  stream = null;
  mark.hidden = true;
  if (document.hidden) return;
  stream = new EventSource(address);
  stream.addEventListener("open", () => { mark.hidden = false; });
  stream.addEventListener("error", () => { mark.hidden = true; });
  stream.addEventListener("change", refresh);
}
document.addEventListener("visibilitychange", () => {
  follow();
  if (!document.hidden && document.body.dataset.changes) refresh();
});
window.addEventListener("pagehide", () => stream?.close());

// ---------------------------------------------------------------------------------------------------------- tokens

// The rows that follow: those of the page that the link leads to, or in an exported page those that came with it.
async function nextRows(link) {
  if (rest) return { rows: rest.shift(), next: rest.length ? link : null };
  const reply = await fetch(link.href);
  if (!reply.ok) return null;
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  return { rows: one("[data-rows]", fresh).innerHTML, next: one("[data-more]", fresh) };
}

const kept = one("script[data-rest]");
const rest = kept ? JSON.parse(kept.textContent) : null;

// A long episode is read by range: when the end of the rows comes into view, those of the next page are added.
function readOn() {
  const link = one("[data-more]");
  if (!link || !("IntersectionObserver" in window)) return;
  const watch = new IntersectionObserver(async (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    const found = await nextRows(link);
    if (!found) return;
    const fresh = new DOMParser().parseFromString(found.rows, "text/html");
    one("[data-rows]").append(...[...fresh.body.children].map((row) => document.adoptNode(row)));
    if (!found.next) link.remove();
    else if (found.next !== link) link.replaceWith(document.adoptNode(found.next));
    readOn();
  });
  watch.observe(link);
}

// -------------------------------------------------------------------------------------------------------- exported

// An exported page has no server to answer its form: the search field filters the entries on the page itself.
function findOnPage() {
  const field = one("[data-exported] .filter [data-find]");
  if (!field) return;
  const form = field.closest("form");
  form.dataset.onPage = "";
  field.placeholder = "on this page";
  form.addEventListener("submit", (event) => event.preventDefault());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const entry of all("[data-entry]")) {
      const text = entry.textContent.toLowerCase();
      entry.hidden = !words.every((word) => text.includes(word));
      if (entry.nextElementSibling?.matches(".next")) entry.nextElementSibling.hidden = entry.hidden;
    }
  });
}

// ----------------------------------------------------------------------------------------------------------- start

function prepare() {
  if (navigator.clipboard) for (const button of all("[data-copy]")) button.hidden = false;
  for (const button of all("[data-help], [data-needs-script]")) button.hidden = false;
  for (const button of all("[data-verdict]")) button.hidden = !document.body.dataset.verdicts;
  for (const button of all("[data-without-script]")) button.hidden = true;
}

prepare();
follow();
readOn();
findOnPage();
