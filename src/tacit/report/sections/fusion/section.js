// Fusions: scores beside their baselines, widths before and after, and which of the clients' neurons became one.

const MOST_NAMES = 16; // clients in a legend

charts["chart-fusion"] = (box) => {
  const shown = data.sections.fusion.scores.filter(({ method }) => !hidden.methods.has(method));
  const rows = shown.map((row) => ({ ...row, style: row.baseline ? "plain" : methodStyle(row.method) }));
  const xs = clampScores(rows.flatMap(({ values }) => values.map(({ value }) => value)));
  const panels = shownSplits().map((title) => ({ title, rows: rows.filter(({ split }) => split === title) }));
  fit(panels.length);
  const common = { xs, xLabel: `global test ${data.score_name}`, whose: "networks" };
  box.replaceChildren(grid(panels.map((panel) => stripPanel({ ...common, ...panel }))));
};

charts["chart-widths"] = (box) => {
  const shown = data.sections.fusion.widths.filter(({ method }) => !hidden.methods.has(method));
  const rows = shown.flatMap(({ method, split, layers }) => layers.map((layer, k) => ({
    ...layer, split, name: layers.length > 1 ? `${method}, hidden layer ${k + 1}` : method, style: methodStyle(method) })));
  const panels = shownSplits().map((title) => ({ title, rows: rows.filter(({ split }) => split === title) }));
  fit(panels.length);
  const high = most([1, ...rows.map(({ local }) => local)]);
  box.replaceChildren(
    legend([
      { name: "fused network", style: "bar plain" },
      { name: "all local networks together", style: "bar plain pale" },
      { name: "widest local network", style: "mean" },
    ]),
    grid(panels.map((panel) => widthPanel({ ...panel, high }))));
};

// rows: [{name, style, fused, local, widest}]: the fused width as a bar within that of all local networks together.
function widthPanel({ title, rows, high }) {
  const tall = 42, height = TOP + tall * rows.length + BOTTOM;
  const x = scale([0, high], LEFT / 2, WIDTH - RIGHT, { zero: true });
  const told = ({ fused, local }) => `${short(fused)} of ${short(local)}`;
  const label = `hidden neurons, ${title}: ${rows.map((row) => `${row.name} ${told(row)}, the widest local network ${short(row.widest)}`).join("; ")}`;
  const picture = rowPicture(x, height, "hidden neurons", label);
  rows.forEach((row, k) => {
    const top = TOP + tall * k + 20, at = { x: x.at(0), y: top, height: 16 };
    const group = make("g", {}, make("title", {}, `${row.name}: ${told(row)}; the widest local network has ${short(row.widest)}`));
    group.append(make("text", { x: LEFT / 2, y: top - 6 }, row.name));
    group.append(make("text", { x: WIDTH - RIGHT, y: top - 6, "text-anchor": "end" }, told(row)));
    group.append(make("rect", { ...at, width: x.at(row.local) - x.at(0), class: `bar pale ${row.style}` }));
    group.append(make("rect", { ...at, width: x.at(row.fused) - x.at(0), class: `bar ${row.style}` }));
    const widest = x.at(row.widest);
    group.append(make("line", { x1: widest, x2: widest, y1: top - 2, y2: top + 18, class: "mean" }));
    picture.append(group);
  });
  return make("figure", { class: "panel" }, make("figcaption", {}, title), picture);
}

charts["chart-matching"] = (box) => {
  const select = document.getElementById("choose-matching");
  const shown = data.sections.fusion.matchings.filter(isShown);
  for (const option of select.options) {
    option.disabled = !shown.some(({ run }) => run === option.value);
    option.hidden = option.disabled;
  }
  const matching = shown.find(({ run }) => run === chosen.matching) ?? shown[0];
  if (!matching) {
    box.replaceChildren(grid([]));
    return;
  }
  select.value = matching.run;
  [WIDTH, HEIGHT] = [Math.max(340, Math.min(1200, box.clientWidth)), 330];
  const { names, layers } = matching;
  const named = names.length <= MOST_NAMES ? names : [];
  const note = make("p", { class: "soft" }, "The matching is known when the run has ended.");
  box.replaceChildren(
    legend(named.map((name, k) => ({ name: clientName(name), style: style(k) }))),
    ...layers.map((layer, k) => layerPicture(matching, layer, k + 1)),
    layers.length ? sharesTable(layers) : note);
};

selects["choose-matching"] = () => data.sections.fusion.matchings.map((one) => [one.run, runTitle(one)]);

const runTitle = ({ method, split, seed }) => `${method}, ${split}, seed ${seed}`;

function layerPicture(matching, layer, number) {
  const title = `${runTitle(matching)}, hidden layer ${number}: ${layer.local.toLocaleString("en")} local neurons become ${layer.width.toLocaleString("en")}`;
  if (layer.places) return matchingPanel({ title, number, layer, names: matching.names });
  return make("p", { class: "soft" }, `${title}. That is too large to draw: a picture has at most ${data.sections.fusion.most} local neurons.`);
}

// Clients' neurons above, each client's in the order of the global ones below, so that no two lines of a client cross.
function matchingPanel({ title, number, layer, names }) {
  const label = `${title}; ${layer.shares.map((count, k) => `${count} shared by ${k + 1}`).join(", ")}`;
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0 });
  const side = 8, span = WIDTH - 2 * side, upper = 26, lower = HEIGHT - 44, middle = (upper + lower) / 2;
  const step = span / layer.order.length, x = { at: (rank) => side + (rank + 0.5) * step };
  const unit = span / (layer.local + 2 * (names.length - 1)), ranks = layer.order.map((_, rank) => rank);
  const rankOf = new Map(layer.order.map((neuron, rank) => [neuron, rank]));
  const groups = ranks.map(() => make("g")), shares = ranks.map(() => 0);
  const owned = names.map(() => ranks.map((rank) => [rank, null]));
  let slot = 0.5;
  layer.places.forEach((own, client) => {
    const mine = own.map((neuron, k) => [rankOf.get(neuron), k]).sort(([a], [b]) => a - b);
    const centre = side + (slot + (mine.length - 1) / 2) * unit;
    const fitting = clientName(names[client]).length * 6 < mine.length * unit;
    if (fitting) picture.append(make("text", { x: centre, y: upper - 12, "text-anchor": "middle" }, clientName(names[client])));
    for (const [rank, k] of mine) {
      const from = side + slot * unit, to = x.at(rank);
      groups[rank].append(make("path", { d: `M${from} ${upper}C${from} ${middle} ${to} ${middle} ${to} ${lower}`, class: `line ${style(client)}` }));
      groups[rank].append(make("circle", { cx: from, cy: upper, r: Math.min(3.5, unit * 0.4), class: `dot ${style(client)}` }));
      owned[client][rank][1] = k;
      shares[rank] += 1;
      slot += 1;
    }
    slot += 2;
  });
  const largest = Math.min(8, Math.max(2, step * 0.48));
  groups.forEach((group, rank) => group.append(make("circle", {
    cx: x.at(rank), cy: lower, r: Math.max(1.2, largest * Math.sqrt(shares[rank] / layer.shares.length)), class: "global" })));
  picture.append(make("g", { class: "matching" }, ...groups), ...shareMarks(shares, x, step, lower));
  const guide = make("line", { class: "guide", visibility: "hidden" });  // the others fade instead
  const fade = (chosen) => groups.forEach((group, rank) => group.classList.toggle("faded", chosen !== null && rank !== chosen));
  const lines = names.map((name, k) => ({ name: `${clientName(name)}, neuron`, style: style(k), points: owned[k] }));
  const nameOf = (rank) => `${layer.order[rank]}, shared by ${shares[rank]}`;
  follow(picture, guide, lines, x, { title: `hidden layer ${number}`, xLabel: "global neuron", nameOf, mark: fade });
  return make("figure", { class: "panel broad" }, make("figcaption", {}, title), picture);
}

// Below the global neurons: by how many clients those between two rules are shared.
function shareMarks(shares, x, step, lower) {
  const found = [make("text", { x: WIDTH / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "global neurons, by the number of clients that share them")];
  const inset = Math.min(4, step * 0.2);
  for (const share of new Set(shares)) {
    const left = x.at(shares.indexOf(share)) - step / 2, right = x.at(shares.lastIndexOf(share)) + step / 2;
    found.push(make("line", { x1: left + inset, x2: right - inset, y1: lower + 12, y2: lower + 12, class: "rule" }));
    if (right - left >= 8) found.push(make("text", { x: (left + right) / 2, y: lower + 25, "text-anchor": "middle" }, share));
  }
  return found;
}

function sharesTable(layers) {
  const counts = [...Array(most(layers.map(({ shares }) => shares.length))).keys()];
  const heading = (text) => make("th", { scope: "col" }, text);
  const head = make("tr", {}, heading("hidden layer"), ...counts.map((k) => heading(k ? `${k + 1} clients` : "1 client")));
  const rows = layers.map(({ shares }, layer) => make("tr", {}, make("th", { scope: "row" }, String(layer + 1)),
    ...counts.map((k) => make("td", {}, (shares[k] ?? 0).toLocaleString("en")))));
  const table = make("table", {}, make("caption", {}, "Global neurons that are shared by"), make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Global neurons by the number of clients that share them" }, table);
}
