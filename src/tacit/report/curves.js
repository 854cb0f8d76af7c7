// Curves of the global model, which several sections draw: a panel per split, a line per method.

// The mean over the seeds of a method's curves, with their lowest and highest values: [x, mean, low, high].
function averaged(curves, xKey, yKey) {
  const rounds = new Map();
  for (const curve of curves) {
    curve.round.forEach((round, k) => {
      const values = rounds.get(round) ?? { xs: [], ys: [] };
      if (curve[xKey][k] !== null) values.xs.push(curve[xKey][k]);
      if (curve[yKey][k] !== null) values.ys.push(curve[yKey][k]);
      rounds.set(round, values);
    });
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const points = [];
  for (const [, { xs, ys }] of [...rounds].sort(([a], [b]) => a - b)) {
    if (!xs.length) continue;
    points.push(ys.length ? [mean(xs), mean(ys), least(ys), most(ys)] : [mean(xs), null, null, null]);
  }
  return points;
}

// The lines of one split; a logarithmic axis, which all but rounds have, has no place for zero.
function splitLines(split, xKey, yKey) {
  const lines = shownMethods().map((name) => {
    const curves = data.curves.filter((curve) => curve.method === name && curve.split === split);
    return { name, style: methodStyle(name), points: averaged(curves, xKey, yKey) };
  });
  if (xKey === "round") {
    for (const name of data.references) {
      const own = data.curves.filter((curve) => curve.method === name && curve.split === split);
      const curves = own.length ? own : data.curves.filter((curve) => curve.method === name && !data.splits.includes(curve.split));
      lines.push({ name, style: "reference", points: averaged(curves, xKey, yKey) });
    }
    return lines.filter(({ points }) => points.length);
  }
  for (const line of lines) line.points = line.points.filter(([x]) => x > 0);
  return lines.filter(({ points }) => points.length);
}

function curvePanels(xKey, yKey, xLabel, yLabel) {
  const panels = shownSplits().map((split) => ({ title: split, lines: splitLines(split, xKey, yKey) }));
  const all = panels.flatMap(({ lines }) => lines.flatMap(({ points }) => points));
  const steady = panels.flatMap(({ title, lines }) =>
    lines.filter(({ name }) => isSteady(name, title)).flatMap(({ points }) => points));
  const values = (steady.length ? steady : all).flatMap(([, y, low, high]) => [y, low, high]);
  const known = values.filter((value) => value !== null);
  const ys = yKey === "score" ? clampScores(known) : known;
  const sorted = [...ys].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  const explodes = sorted[0] > 0 && sorted.at(-1) > 50 * median;
  const logY = yKey === "loss" && explodes;
  const common = { xLabel, yLabel, xs: all.map(([x]) => x), ys, logY, logX: xKey !== "round" };
  return panels.map((panel) => ({ ...common, ...panel }));
}

function drawCurves(box, xKey, yKey, xLabel, yLabel) {
  const panels = curvePanels(xKey, yKey, xLabel, yLabel);
  const names = [...shownMethods(), ...(xKey === "round" ? data.references : [])];
  const columns = panels.flatMap(({ title, lines }) => lines.map(({ name, points }) => ({
    name: `${name}, ${title}`, points: points.map(([x, y]) => [x, y]) })));
  fit(panels.length);
  box.replaceChildren(
    legend(names.map((name) => ({ name, style: methodStyle(name) }))),
    grid(panels.map(linePanel)),
    numbers(box.id, columns, xLabel));
}
