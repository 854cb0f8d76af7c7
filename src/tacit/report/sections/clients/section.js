// Each client's own metrics: a panel per method and split, a line per client.

const MANY_CLIENTS = 16; // in a panel: then the local tests alone, as thin lines

charts["chart-clients"] = (box) => {
  const isLoss = chosen.local === "loss";
  const seed = seedOf(data.clients);
  const runs = data.clients.filter((run) => run.seed === seed && isShown(run));
  const kinds = isLoss ? ["train_loss", "test_loss"] : ["train", "test"];
  const panels = runs.map((run) => ({
    title: `${run.method}, ${run.split}`,
    lines: clientLines(run, kinds),
    isSteady: isSteady(run.method, run.split),
  }));
  const pointsOf = (some) => some.flatMap(({ lines }) => lines.flatMap(({ points }) => points));
  const all = pointsOf(panels);
  const steady = pointsOf(panels.filter((panel) => panel.isSteady));
  const values = (steady.length ? steady : all).map(([, y]) => y);
  const common = {
    xLabel: "round",
    yLabel: isLoss ? "local loss" : `local ${data.score_name}`,
    xs: all.map(([x]) => x),
    ys: isLoss ? values : clampScores(values),
  };
  const columns = panels.flatMap(({ title, lines }) => lines.map(({ name, points }) => ({
    name: `${title}, ${name}`, points: points.map(([x, y]) => [x, y]) })));
  fit(panels.length);
  box.replaceChildren(
    legend(legendItems(runs, kinds[0])),
    grid(panels.map((panel) => linePanel({ ...common, ...panel }))),
    numbers(box.id, columns, "round"));
};

selects["choose-seed"] = () => seedChoices(data.clients);
selects["choose-local"] = () => [["score", data.score_name], ["loss", "loss"]];

// Two lines per client, train and local test; of many clients the latter.
function clientLines(run, [trainKind, testKind]) {
  const isMany = run.names.length > MANY_CLIENTS;
  const styles = clientStyles();
  return run.names.flatMap((name, k) => {
    const isAttacker = run.attackers.includes(k);
    const title = `${clientName(name)}${isAttacker ? " (attacker)" : ""}`;
    const train = {
      name: `${title}, train`, style: `${styles.get(name)} thin`, mark: "", points: run[trainKind] ? clientPoints(run, trainKind, k) : [] };
    const test = {
      name: `${title}, local test`,
      style: isMany ? `${styles.get(name)} faint` : styles.get(name),
      mark: isAttacker ? "×" : "",
      points: clientPoints(run, testKind, k),
    };
    return isMany || !run[trainKind] ? [test] : [train, test];
  });
}

// A client has one colour in all panels, also where others are left out.
function clientStyles() {
  const names = [...new Set(data.clients.flatMap((run) => run.names))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return new Map(names.map((name, k) => [name, style(k)]));
}

function clientPoints(run, kind, client) {
  const points = run.round.map((round, k) => [round, run[kind][client][k], null, null]);
  return points.filter(([, y], k) => y !== null || k > 0);
}

function legendItems(runs, trainKind) {
  const largest = most([0, ...runs.map(({ names }) => names.length)]);
  const isMany = largest > MANY_CLIENTS;
  const names = new Set(runs.flatMap((run) => run.names));
  const styles = clientStyles();
  const items = isMany ? [] : [...names].map((name) => ({ name: clientName(name), style: styles.get(name) }));
  if (runs.some(({ attackers }) => attackers.length)) {
    items.push({ name: "× at its end: an attacker", style: "hidden" });
  }
  if (!isMany && runs.some((run) => run[trainKind])) items.push({ name: "train, during the round", style: "plain thin" });
  const count = isMany ? ` (${largest} clients)` : "";
  items.push({ name: `local test, after the round${count}`, style: "plain" });
  return items;
}
