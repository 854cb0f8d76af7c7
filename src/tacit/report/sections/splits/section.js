// Who holds what: labels per client, for training and the local test, and sizes.

const SIDES = [{ name: "train", style: "plain" }, { name: "local test", style: "reference" }];

charts["chart-splits"] = (box) => {
  const portraits = data.sections.splits;
  const seed = seedOf(portraits);
  const followsFilter = data.columns === "split";
  const drawn = portraits.filter((portrait) =>
    portrait.seed === seed && (!followsFilter || shownSplits().includes(portrait.split)));
  fit(Infinity);
  const panels = drawn.flatMap((portrait) => portraitPanels(portrait, portraits));
  box.replaceChildren(legend(barItems(drawn)), make("div", { class: "panels" }, ...panels));
};

selects["choose-split-seed"] = () => seedChoices(data.sections.splits);

const clientCount = ({ clients, left_out }) => clients.length + left_out;
const hasFew = ({ clients, labels }) => clients.length <= 6 && clients.length * labels.length <= 80;

function portraitPanels(portrait, portraits) {
  const severalDatasets = new Set(portraits.map(({ dataset }) => dataset)).size > 1;
  const severalSizes = new Set(portraits.map(clientCount)).size > 1;
  const dataset = severalDatasets ? `${portrait.dataset}: ` : "";
  const size = severalSizes ? `, ${clientCount(portrait)} clients` : "";
  const title = `${dataset}${portrait.split}${size}`;
  const isNoisy = portrait.noise.some((level) => level > 0);
  const levels = portrait.noise.map((level) => short(level, 2)).join(", ");
  return [
    labelPanel(portrait, `${title}, train`, portrait.train),
    labelPanel(portrait, `${title}, local test`, portrait.test),
    sizePanel(portrait, `${title}, sizes${isNoisy ? `, noise ${levels}` : ""}`),
  ];
}

function labelPanel(portrait, title, counts) {
  const { clients, labels } = portrait;
  if (!hasFew(portrait)) {
    return matrixPanel({ title, rows: clients, columns: labels, values: counts, rowLabel: "client", columnLabel: "label" });
  }
  const series = clients.map((name, k) => ({ name: clientName(name), style: style(k) }));
  const groups = labels.map((name, j) => ({ name, values: counts.map((row) => row[j]) }));
  const high = Math.max(1, ...counts.flat());
  return barPanel({ title, groups, series, xLabel: "label", yLabel: "samples", high });
}

function sizePanel(portrait, title) {
  const total = (row) => row.reduce((sum, count) => sum + count, 0);
  const groups = portrait.clients.map((name, k) => ({
    name, values: [total(portrait.train[k]), total(portrait.test[k])] }));
  const high = Math.max(1, ...groups.flatMap(({ values }) => values));
  return barPanel({ title, groups, series: SIDES, xLabel: "client", yLabel: "samples", high });
}

// The clients' colours, where bars have them, and the two sides of the sizes.
function barItems(portraits) {
  const hasBars = portraits.length && portraits.every(hasFew);
  const longest = (names, { clients }) => (clients.length > names.length ? clients : names);
  const clients = hasBars ? portraits.reduce(longest, []) : [];
  const items = clients.map((name, k) => ({ name: clientName(name), style: `bar ${style(k)}` }));
  for (const { name, style } of SIDES) {
    items.push({ name: name === "train" ? "sizes: train" : name, style: `bar ${style}` });
  }
  return items;
}
