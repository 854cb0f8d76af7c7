// Calibration curves: a panel per split with a line per method, or a panel for the clients of the best run.

charts["chart-calibration"] = (box) => {
  const curves = data.sections.calibration;
  const byClient = chosen.calibration === "clients";
  const panels = byClient ? clientPanels(curves) : methodPanels(curves);
  const common = { xLabel: "probability", yLabel: "how often it was so", xs: [0, 1], ys: [0, 1] };
  const lines = panels.flatMap(({ title, lines: drawn }) => drawn.map((line) => ({
    name: `${title}, ${line.name}`, points: line.points.map(([x, y]) => [x, y]) })));
  const shown = panels.flatMap(({ lines: drawn }) => drawn);
  const names = new Map(shown.map(({ name, style: kind }) => [name, kind]));
  fit(panels.length);
  box.replaceChildren(
    legend([...names].map(([name, kind]) => ({ name, style: kind }))),
    grid(panels.map((panel) => linePanel({ ...common, ...panel }))),
    numbers(box.id, lines, "probability"));
};

selects["choose-calibration"] = () => {
  const hasClients = data.sections.calibration.some(({ client }) => client !== null);
  return [["methods", "methods, on the test set"], ...(hasClients ? [["clients", "the best run's clients, on their own tests"]] : [])];
};

const diagonal = { name: "as they say", style: "plain d2", points: [[0, 0, null, null], [1, 1, null, null]] };
const pointsOf = ({ points }) => points.map(([x, y]) => [x, y, null, null]);

function methodPanels(curves) {
  const whole = curves.filter(({ client }) => client === null);
  const references = whole.filter(({ method }) => data.references.includes(method));
  return shownSplits().map((split) => {
    const own = whole.filter((curve) => curve.split === split && !references.includes(curve));
    const candidates = [...own, ...references]; // a reference stands in every panel
    const lines = [...shownMethods(), ...data.references].flatMap((method) => {
      const curve = candidates.find((one) => one.method === method);
      return curve ? [{ name: method, style: methodStyle(method), points: pointsOf(curve) }] : [];
    });
    return { title: split, lines: [diagonal, ...lines] };
  });
}

function clientPanels(curves) {
  const own = curves.filter(({ client }) => client !== null);
  if (!own.length) return [];
  const lines = own.map((curve, k) => ({ name: clientName(curve.client), style: style(k), points: pointsOf(curve) }));
  return [{ title: `${own[0].method}, ${own[0].split}`, lines: [diagonal, ...lines] }];
}
