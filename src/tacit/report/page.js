"use strict";
// The page: its filters and choices, the charts that follow them, and the live refresh.
// A section's script adds to `charts` and `selects`; the numbers are in `data`.

let data;
const hidden = { methods: new Set(), splits: new Set() }; // what the filters leave out
const chosen = {}; // what the selects are set to, by their data-choice
const charts = {}; // by the id of a chart's box: the function that draws into it
const selects = {}; // by the id of a select: the function that lists its [value, text] pairs

const style = (number) => `c${number % 8} d${Math.floor(number / 8) % 4}`;
const shownMethods = () => data.methods.filter((name) => !hidden.methods.has(name));
const shownSplits = () => data.splits.filter((name) => !hidden.splits.has(name));
const isShown = ({ method, split }) => !hidden.methods.has(method) && !hidden.splits.has(split);
const clientName = (name) => (/^\d+$/.test(name) ? `client ${name}` : name);

function methodStyle(name) {
  return data.references.includes(name) ? "reference" : style(data.methods.indexOf(name));
}

// One, two or four panels are large and stand two in a row.
function grid(panels) {
  if (!panels.length) return make("p", { class: "soft" }, "Nothing is chosen above.");
  return make("div", { class: isFew(panels.length) ? "panels pairs" : "panels" }, ...panels);
}

// What goes far astray would flatten everything else: R² is drawn from -1 on.
function clampScores(values) {
  if (data.score !== "r2") return values;
  return values.map((value) => (value === null ? null : Math.max(-1, value)));
}

// Scales follow the runs that did not diverge.
function isSteady(method, split) {
  const runs = data.curves.filter((curve) => curve.method === method && curve.split === split);
  return !runs.some(({ status }) => status === "diverged");
}

// The chosen seed, if these items have it, or else their first.
function seedOf(items) {
  return items.some(({ seed }) => seed === chosen.seed) ? chosen.seed : items[0]?.seed;
}

function seedChoices(items) {
  return [...new Set(items.map(({ seed }) => seed))].map((seed) => [seed, `seed ${seed}`]);
}

// A chart's numbers as a table, made when somebody opens it. columns: [{name, points: [[x, y], ...]}].
function numbers(id, columns, xLabel) {
  const box = make("details", { class: "numbers" }, make("summary", {}, "The numbers"));
  box.addEventListener("toggle", () => {
    if (!box.open || box.querySelector("table")) return;
    const label = `the numbers of ${id.replace("chart-", "the chart: ")}`;
    const table = numberTable(columns, xLabel);
    table.id = `${id}-numbers`;
    box.append(make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, table));
  });
  return box;
}

function numberTable(columns, xLabel) {
  const xs = columns.flatMap(({ points }) => points.map(([x]) => x));
  const steps = [...new Set(xs)].sort((a, b) => a - b);
  const values = columns.map(({ points }) => new Map(points));
  const headings = columns.map(({ name }) => make("th", { scope: "col" }, name));
  const head = make("tr", {}, make("th", { scope: "col" }, xLabel), ...headings);
  const rows = steps.map((x) => {
    const cells = values.map((column) => make("td", {}, short(column.get(x) ?? null)));
    return make("tr", {}, make("th", { scope: "row" }, short(x)), ...cells);
  });
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function draw() {
  for (const [id, paint] of Object.entries(charts)) {
    const box = document.getElementById(id);
    if (box) paint(box);
  }
  for (const element of document.querySelectorAll("[data-method], [data-split]")) {
    const { method, split } = element.dataset;
    element.hidden = hidden.methods.has(method) || hidden.splits.has(split);
  }
}

// Checkboxes for the methods or the splits, with buttons for all and none where there are several.
function fillFilter(id, names, kind) {
  const box = document.getElementById(id);
  if (!box) return;
  const setAll = (isWanted) => {
    names.forEach((name) => hidden[kind][isWanted ? "delete" : "add"](name));
    fillFilter(id, names, kind);
    draw();
  };
  const button = (label, isWanted) => {
    const made = make("button", { type: "button", "aria-label": `${label} ${kind}` }, label);
    made.addEventListener("click", () => setAll(isWanted));
    return made;
  };
  const columns = { split: "Splits", test: "Tested on", attackers: "Attacks" };
  const heading = kind === "methods" ? "Methods" : columns[data.columns];
  const chips = names.map((name, k) => chip(`${id}-${k}`, name, kind));
  const buttons = names.length > 3 ? [button("all", true), button("none", false)] : [];
  box.hidden = names.length < 2;
  box.replaceChildren(make("legend", {}, heading), ...chips, ...buttons);
}

function chip(id, name, kind) {
  const box = make("input", { type: "checkbox", id });
  box.checked = !hidden[kind].has(name);
  box.addEventListener("change", () => {
    hidden[kind][box.checked ? "delete" : "add"](name);
    draw();
  });
  const mark = kind === "methods" ? [swatch(methodStyle(name))] : [];
  return make("label", { class: "chip", for: id }, box, ...mark, name);
}

// Selects with the same data-choice move together.
function fillSelect(id, choices) {
  const select = document.getElementById(id);
  if (!select) return;
  const key = select.dataset.choice;
  const options = choices.map(([value, text]) => make("option", { value: String(value) }, text));
  select.replaceChildren(...options);
  if (chosen[key] !== undefined) select.value = String(chosen[key]);
  select.addEventListener("change", () => {
    chosen[key] = choices.find(([value]) => String(value) === select.value)[0];
    for (const twin of document.querySelectorAll(`[data-choice="${key}"]`)) twin.value = select.value;
    draw();
  });
  if (choices.length < 2) {
    select.hidden = true;
    document.querySelector(`label[for="${id}"]`).hidden = true;
  }
}

function start() {
  data = JSON.parse(document.getElementById("data").textContent);
  fillFilter("filter-methods", data.methods, "methods");
  fillFilter("filter-splits", data.splits, "splits");
  document.getElementById("filters").hidden = data.methods.length < 2 && data.splits.length < 2;
  for (const [id, list] of Object.entries(selects)) {
    if (document.getElementById(id)) fillSelect(id, list());
  }
  draw();
  document.documentElement.dataset.ready = "yes";
}

function setUpTheme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const names = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("tacit-theme") ?? "auto"; } catch { /* a page from a file may have no storage */ }
  const apply = () => {
    root.dataset.theme = theme;
    button.textContent = `colours: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % 3];
    try { localStorage.setItem("tacit-theme", theme); } catch { /* as above */ }
    apply();
  });
  apply();
}

// While a study runs: asks for the page again and again, and shows it when it has changed.
async function refresh() {
  const badge = document.getElementById("live");
  if (!badge) return;
  let tag = badge.dataset.tag;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1500));
    try {
      const wasLost = document.getElementById("live").classList.contains("lost");
      const headers = { "If-None-Match": wasLost ? "" : tag };
      const answer = await fetch(location.pathname, { headers, cache: "no-store" });
      if (answer.status >= 400) continue;
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        showNewPage(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
      document.getElementById("live").classList.remove("lost");
    } catch {
      document.getElementById("live").classList.add("lost");
      document.getElementById("live").textContent = "not connected: tacit watch has ended";
    }
  }
}

// Puts the new main part in place of the old; what the reader has opened and focused stays so.
function showNewPage(page) {
  const focused = document.activeElement?.id;
  const open = [...document.querySelectorAll("details[id][open]")].map(({ id }) => id);
  for (const id of ["content", "data", "live"]) {
    document.getElementById(id).replaceWith(page.getElementById(id));
  }
  start();
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function openPage() {
  setUpTheme();
  start();
  refresh();
}
