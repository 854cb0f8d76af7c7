"use strict";
// The page: filters, the charts they rule, the numbers behind them, and the live refresh.

let data;
const hidden = { methods: new Set(), splits: new Set() };
const chosen = {};

// One, two or four panels are large and stand two in a row.
const grid = (panels) => panels.length
  ? make("div", { class: isFew(panels.length) ? "panels pairs" : "panels" }, ...panels)
  : make("p", { class: "soft" }, "Nothing is chosen above.");

// What goes far astray would flatten everything else: the scale follows the runs that did not diverge, R² from -1 on.
const sane = (values) => (data.score === "r2" ? values.map((value) => (value === null ? null : Math.max(-1, value))) : values);
const steady = (method, split) => !data.curves.some((curve) => curve.method === method && curve.split === split && curve.status === "diverged");

const style = (place) => `c${place % 8} d${Math.floor(place / 8) % 4}`;
const methodStyle = (name) => (data.references.includes(name) ? "reference" : style(data.methods.indexOf(name)));
const shownMethods = () => data.methods.filter((name) => !hidden.methods.has(name));
const shownSplits = () => data.splits.filter((name) => !hidden.splits.has(name));

// The mean over the seeds of a method's curves, with their lowest and highest values.
function averaged(curves, xKey, yKey) {
  const places = new Map();
  for (const curve of curves) {
    curve.round.forEach((round, k) => {
      const there = places.get(round) ?? { xs: [], ys: [] };
      if (curve[xKey][k] !== null) there.xs.push(curve[xKey][k]);
      if (curve[yKey][k] !== null) there.ys.push(curve[yKey][k]);
      places.set(round, there);
    });
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return [...places.entries()].sort(([a], [b]) => a - b).filter(([, { xs }]) => xs.length).map(([, { xs, ys }]) =>
    ys.length ? [mean(xs), mean(ys), least(ys), most(ys)] : [mean(xs), null, null, null]);
}

function curvePanels(xKey, yKey, xLabel, yLabel) {
  const references = xKey === "round" ? data.references : [];
  const panels = shownSplits().map((split) => {
    const lines = shownMethods().map((name) => ({
      name,
      style: methodStyle(name),
      points: averaged(data.curves.filter((curve) => curve.method === name && curve.split === split), xKey, yKey),
    }));
    for (const name of references) {
      const points = averaged(data.curves.filter((curve) => curve.method === name), xKey, yKey);
      lines.push({ name, style: "reference", points });
    }
    const kept = lines.filter(({ points }) => points.some(([x]) => xKey === "round" || x > 0));
    return { title: split, lines: kept.map((line) => ({ ...line, points: line.points.filter(([x]) => xKey === "round" || x > 0) })) };
  });
  const all = panels.flatMap(({ lines }) => lines.flatMap(({ points }) => points));
  const calm = panels.flatMap(({ title, lines }) => lines.filter(({ name }) => steady(name, title)).flatMap(({ points }) => points));
  const values = (calm.length ? calm : all).flatMap(([, y, low, high]) => [y, low, high]).filter((value) => value !== null);
  const ys = yKey === "score" ? sane(values) : values;
  const sorted = [...ys].sort((a, b) => a - b);
  const logY = yKey === "loss" && sorted[0] > 0 && sorted.at(-1) > 50 * sorted[Math.floor(sorted.length / 2)];
  const common = { xLabel, yLabel, xs: all.map(([x]) => x), ys, logY, logX: xKey !== "round" };
  return { panels: panels.map((panel) => ({ ...common, ...panel })), names: [...shownMethods(), ...references] };
}

function drawCurves(place, xKey, yKey, xLabel, yLabel) {
  const { panels, names } = curvePanels(xKey, yKey, xLabel, yLabel);
  fit(panels.length);
  place.replaceChildren(
    legend(names.map((name) => ({ name, style: methodStyle(name) }))),
    grid(panels.map(linePanel)),
    numbers(place.id, panels.flatMap(({ title, lines }) => lines.map(({ name, points }) => ({
      name: `${name}, ${title}`, points: points.map(([x, y]) => [x, y]) }))), xLabel));
}

const MANY = 16; // clients in a panel

const seedOf = (items) => (items.some(({ seed }) => seed === chosen.seed) ? chosen.seed : items[0]?.seed);

function drawClients(place) {
  const seed = seedOf(data.clients), loss = chosen.local === "loss";
  const mine = data.clients.filter((one) => one.seed === seed && !hidden.methods.has(one.method) && !hidden.splits.has(one.split));
  const kinds = loss ? ["train_loss", "test_loss"] : ["train", "test"];
  const panels = mine.map((one) => {
    const many = one.names.length > MANY;  // then the local tests alone, as thin lines
    const lines = one.names.flatMap((name, k) => kinds.map((kind, j) => ({
      name: `${clientName(name)}${one.attackers.includes(k) ? " (attacker)" : ""}, ${j ? "local test" : "train"}`,
      style: `${style(k)} ${j ? (many ? "faint" : "") : "thin"}`.trim(),
      mark: j && one.attackers.includes(k) ? "×" : "",
      points: one.round.map((round, r) => [round, one[kind][k][r], null, null]).filter(([, y], r) => y !== null || r > 0),
    })).filter((_, j) => j || !many));
    return { title: `${one.method}, ${one.split}`, lines, calm: steady(one.method, one.split) };
  });
  fit(panels.length);
  const all = panels.flatMap(({ lines }) => lines.flatMap(({ points }) => points));
  const calm = panels.filter((panel) => panel.calm).flatMap(({ lines }) => lines.flatMap(({ points }) => points));
  const values = (calm.length ? calm : all).map(([, y]) => y);
  const common = { xLabel: "round", yLabel: loss ? "local loss" : `local ${data.score_name}`, xs: all.map(([x]) => x), ys: loss ? values : sane(values) };
  const largest = most([0, ...mine.map(({ names }) => names.length)]);
  const names = mine.find((one) => one.names.length === largest)?.names ?? [];
  const items = largest <= MANY ? names.map((name, k) => ({ name: clientName(name), style: style(k) })) : [];
  if (mine.some(({ attackers }) => attackers.length)) items.push({ name: "× at its end: an attacker", style: "hidden" });
  if (largest <= MANY) items.push({ name: "train, as it worked", style: "plain thin" });
  items.push({ name: `local test, after the round${largest > MANY ? ` (${largest} clients)` : ""}`, style: "plain" });
  place.replaceChildren(
    legend(items),
    grid(panels.map((panel) => linePanel({ ...common, ...panel }))),
    numbers(place.id, panels.flatMap(({ title, lines }) => lines.map(({ name, points }) => ({
      name: `${title}, ${name}`, points: points.map(([x, y]) => [x, y]) }))), "round"));
}

const clientName = (name) => (/^\d+$/.test(name) ? `client ${name}` : name);

function drawFairness(place) {
  const rowsOf = (split) => shownMethods().map((method) => {
    const mine = data.clients.filter((one) => one.method === method && one.split === split);
    const values = mine.flatMap((one) => { // of a crowd, those of the last round
      const { names, test, attackers } = one.last ?? one;
      return names.map((name, k) => ({
        who: `${clientName(name)}, seed ${one.seed}`, value: attackers.includes(k) ? null : test[k].at(-1) }));
    })
      .filter(({ value }) => value !== null && value !== undefined);
    const mean = values.reduce((sum, { value }) => sum + value, 0) / Math.max(1, values.length);
    return { name: method, style: methodStyle(method), values, mean };
  });
  const panels = shownSplits().map((split) => ({ title: split, rows: rowsOf(split) }));
  const xs = sane(panels.flatMap(({ rows }) => rows.flatMap(({ values }) => values.map(({ value }) => value))));
  fit(panels.length);
  const xLabel = `local test ${data.score_name}`;
  place.replaceChildren(grid(panels.map((panel) => stripPanel({ ...panel, xs, xLabel }))));
}

function drawPortraits(place) {
  const seed = seedOf(data.portraits), several = new Set(data.portraits.map(({ dataset }) => dataset)).size > 1;
  const splits = data.columns === "split" ? shownSplits() : null;
  const drawn = data.portraits.filter((one) => one.seed === seed && (!splits || splits.includes(one.split)));
  const sizes = new Set(data.portraits.map(({ clients, left_out }) => clients.length + left_out)).size;
  fit(Infinity);
  const panels = drawn.flatMap((one) => {
    const title = `${several ? `${one.dataset}: ` : ""}${one.split}${sizes > 1 ? `, ${one.clients.length + one.left_out} clients` : ""}`;
    const levels = one.noise.some((level) => level > 0) ? `, noise ${one.noise.map((level) => short(level, 2)).join(", ")}` : "";
    const sides = ["train", "test"].map((side) => sharePanel(one, `${title}, ${side === "train" ? "train" : "local test"}`, one[side]));
    return [...sides, sizePanel(one, `${title}, sizes${levels}`)];
  });
  const few = drawn.length && drawn.every((one) => hasFew(one));
  const names = few ? drawn.reduce((most, one) => (one.clients.length > most.length ? one.clients : most), []) : [];
  place.replaceChildren(
    legend([...names.map((name, k) => ({ name: clientName(name), style: style(k) })), ...SIDES]
      .map(({ name, style }) => ({ name: name === "train" ? "sizes: train" : name, style: `bar ${style}` }))),
    make("div", { class: "panels" }, ...panels));
}

const hasFew = (one) => one.clients.length <= 6 && one.clients.length * one.labels.length <= 80;

const SIDES = [{ name: "train", style: "plain" }, { name: "local test", style: "reference" }];

function sizePanel(one, title) {
  const total = (row) => row.reduce((sum, count) => sum + count, 0);
  const groups = one.clients.map((name, k) => ({ name, values: [total(one.train[k]), total(one.test[k])] }));
  const high = Math.max(1, ...groups.flatMap(({ values }) => values));
  return barPanel({ title, groups, series: SIDES, xLabel: "client", yLabel: "samples", high });
}

function sharePanel(one, title, counts) {
  if (!hasFew(one)) {
    return matrixPanel({ title, rows: one.clients, columns: one.labels, values: counts, rowLabel: "client", columnLabel: "label" });
  }
  const series = one.clients.map((name, k) => ({ name: clientName(name), style: style(k) }));
  const groups = one.labels.map((name, j) => ({ name, values: counts.map((row) => row[j]) }));
  return barPanel({ title, groups, series, xLabel: "label", yLabel: "samples", high: Math.max(1, ...counts.flat()) });
}

// A chart's numbers as a table, made when somebody opens it.
function numbers(id, columns, xLabel) {
  const box = make("details", { class: "numbers" }, make("summary", {}, "The numbers"));
  box.addEventListener("toggle", () => {
    if (!box.open || box.querySelector("table")) return;
    const places = [...new Set(columns.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
    const found = columns.map(({ points }) => new Map(points));
    const head = make("tr", {}, make("th", { scope: "col" }, xLabel), ...columns.map(({ name }) => make("th", { scope: "col" }, name)));
    const rows = places.map((at) => make("tr", {}, make("th", { scope: "row" }, short(at)),
      ...found.map((values) => make("td", {}, short(values.get(at) ?? null)))));
    const table = make("table", { id: `${id}-numbers` }, make("thead", {}, head), make("tbody", {}, ...rows));
    box.append(make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `the numbers of ${id.replace("chart-", "the chart: ")}` }, table));
  });
  return box;
}

const CHARTS = {
  "chart-score": (place) => drawCurves(place, "round", "score", "round", `global test ${data.score_name}`),
  "chart-loss": (place) => drawCurves(place, "round", "loss", "round", "global test loss"),
  "chart-fusion": drawFusion,
  "chart-widths": drawWidths,
  "chart-matching": drawMatching,
  "chart-clients": drawClients,
  "chart-fairness": drawFairness,
  "chart-splits": drawPortraits,
  "chart-cost": (place) => chosen.cost === "time"
    ? drawCurves(place, "time", "score", "seconds of computing", `global test ${data.score_name}`)
    : drawCurves(place, "mb", "score", "megabytes sent by all clients", `global test ${data.score_name}`),
};

function draw() {
  for (const [id, paint] of Object.entries(CHARTS)) {
    const place = document.getElementById(id);
    if (place) paint(place);
  }
  for (const row of document.querySelectorAll("[data-method]")) row.hidden = hidden.methods.has(row.dataset.method);
  for (const cell of document.querySelectorAll("[data-split]")) cell.hidden = hidden.splits.has(cell.dataset.split);
}

function chips(id, names, kind) {
  const place = document.getElementById(id);
  if (!place) return;
  const items = names.map((name, k) => {
    const box = make("input", { type: "checkbox", id: `${id}-${k}` });
    box.checked = !hidden[kind].has(name);
    box.addEventListener("change", () => {
      hidden[kind][box.checked ? "delete" : "add"](name);
      draw();
    });
    const mark = kind === "methods" ? [swatch(methodStyle(name))] : [];
    return make("label", { class: "chip", for: box.id }, box, ...mark, name);
  });
  const all = (label, wanted) => {
    const button = make("button", { type: "button", "aria-label": `${label} ${kind}` }, label);
    button.addEventListener("click", () => {
      names.forEach((name) => hidden[kind][wanted ? "delete" : "add"](name));
      chips(id, names, kind);
      draw();
    });
    return button;
  };
  const legendText = make("legend", {}, kind === "methods" ? "Methods" : data.columns === "split" ? "Splits" : "Attacks");
  place.hidden = names.length < 2;
  place.replaceChildren(legendText, ...items, ...(names.length > 3 ? [all("all", true), all("none", false)] : []));
}

function choices(id, key, values) {
  const place = document.getElementById(id);
  if (!place) return;
  place.replaceChildren(...values.map(([value, text]) => make("option", { value: String(value) }, text)));
  if (chosen[key] !== undefined) place.value = String(chosen[key]);
  place.addEventListener("change", () => {
    chosen[key] = values.find(([value]) => String(value) === place.value)[0];
    document.querySelectorAll(`[data-choice="${key}"]`).forEach((other) => (other.value = place.value));
    draw();
  });
  const label = document.querySelector(`label[for="${id}"]`);
  if (values.length < 2) place.hidden = label.hidden = true;
}

function start() {
  data = JSON.parse(document.getElementById("data").textContent);
  chips("filter-methods", data.methods, "methods");
  chips("filter-splits", data.splits, "splits");
  const seeds = (items) => [...new Set(items.map(({ seed }) => seed))].map((seed) => [seed, `seed ${seed}`]);
  document.getElementById("filters").hidden = data.methods.length < 2 && data.splits.length < 2;
  choices("choose-seed", "seed", seeds(data.clients));
  choices("choose-split-seed", "seed", seeds(data.portraits));
  choices("choose-local", "local", [["score", data.score_name], ["loss", "loss"]]);
  choices("choose-matching", "matching", (data.fusion?.matchings ?? []).map((one) => [one.run, runTitle(one)]));
  choices("choose-cost", "cost", [["mb", "megabytes sent"], ["time", "seconds of computing"]]);
  draw();
  document.documentElement.dataset.ready = "yes";
}

function theme() {
  const root = document.documentElement, button = document.getElementById("theme");
  const names = ["auto", "light", "dark"];
  let now = "auto";
  try { now = localStorage.getItem("tacit-theme") ?? "auto"; } catch { /* a page from a file may have no storage */ }
  const apply = () => {
    root.dataset.theme = now;
    button.textContent = `colours: ${now}`;
  };
  button.addEventListener("click", () => {
    now = names[(names.indexOf(now) + 1) % 3];
    try { localStorage.setItem("tacit-theme", now); } catch { /* as above */ }
    apply();
  });
  apply();
}

// While a study runs: fetch the page again when it has changed, and put its new main part in place of the old.
async function refresh() {
  const badge = document.getElementById("live");
  if (!badge) return;
  let tag = badge.dataset.tag;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1500));
    try {
      const lost = document.getElementById("live").classList.contains("lost");
      const answer = await fetch(location.pathname, { headers: { "If-None-Match": lost ? "" : tag }, cache: "no-store" });
      if (answer.status >= 400) continue;
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const focused = document.activeElement?.id, open = [...document.querySelectorAll("details[id][open]")].map(({ id }) => id);
        for (const id of ["content", "data", "live"]) document.getElementById(id).replaceWith(page.getElementById(id));
        start();
        open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
        if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      }
      document.getElementById("live").classList.remove("lost");
    } catch {
      document.getElementById("live").classList.add("lost");
      document.getElementById("live").textContent = "not connected: tacit watch has ended";
    }
  }
}

theme();
start();
refresh();
