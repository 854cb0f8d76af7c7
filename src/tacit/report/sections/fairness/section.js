// A dot for each honest client's local test after the last round.

charts["chart-fairness"] = (box) => {
  const panels = shownSplits().map((split) => ({
    title: split, rows: shownMethods().map((method) => methodRow(method, split)) }));
  const values = panels.flatMap(({ rows }) => rows.flatMap((row) => row.values.map(({ value }) => value)));
  const common = { xs: clampScores(values), xLabel: `local test ${data.score_name}` };
  fit(panels.length);
  box.replaceChildren(grid(panels.map((panel) => stripPanel({ ...panel, ...common }))));
};

function methodRow(method, split) {
  const runs = data.clients.filter((run) => run.method === method && run.split === split);
  const values = runs.flatMap(honestDots);
  const mean = values.reduce((sum, { value }) => sum + value, 0) / Math.max(1, values.length);
  return { name: method, style: methodStyle(method), values, mean };
}

// Of a crowd, `last` holds the clients of the last round.
function honestDots(run) {
  const { names, test, attackers } = run.last ?? run;
  const dots = names.map((name, k) => ({
    who: `${clientName(name)}, seed ${run.seed}`, value: attackers.includes(k) ? null : test[k].at(-1) }));
  return dots.filter(({ value }) => value !== null && value !== undefined);
}
