"use strict";
// Charts as SVG: lines with bands, grouped bars, strips of dots and shaded matrices. Colours are CSS classes c0 to c7.

const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 38;
let WIDTH = 400, HEIGHT = 250;

// Few panels are drawn larger, so that letters have one size whatever the number of panels.
const isFew = (panels) => panels <= 2 || panels === 4;

function fit(panels) {
  [WIDTH, HEIGHT] = isFew(panels) && window.innerWidth > 900 ? [570, 310] : [400, 250];
}

function make(kind, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "text", "circle", "rect", "title"].includes(kind);
  const node = drawn ? document.createElementNS("http://www.w3.org/2000/svg", kind) : document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function short(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

function ticks(low, high, wanted = 5) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) {
    found.push(Math.abs(value) < step * 1e-6 ? 0 : value);
  }
  return found;
}

function logTicks(low, high) {
  const found = [];
  const few = high / low > 50, every = Math.ceil(Math.log10(high / low) / 6);
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += few ? every : 1) {
    for (const factor of few ? [1] : [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found.length > 1 ? found : [low, high];
}

// Of very many values: spreading them into Math.min would overflow the stack.
const least = (values) => values.reduce((low, value) => Math.min(low, value), Infinity);
const most = (values) => values.reduce((high, value) => Math.max(high, value), -Infinity);

function scale(values, from, to, { log = false, zero = false, whole = false } = {}) {
  const known = values.filter((value) => value !== null && Number.isFinite(value) && (!log || value > 0));
  let low = zero ? 0 : least(known), high = most(known);
  if (!known.length) [low, high] = [log ? 1 : 0, 10];
  const alike = high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high));  // but for rounding
  if (alike) [low, high] = log ? [low / 2, high * 2] : [low - (zero ? 0 : 0.5), high + 0.5];
  const pad = log || zero ? 0 : (high - low) * 0.04;
  low -= pad;
  high += zero ? high * 0.05 : pad;
  const turn = log ? Math.log10 : (value) => value;
  const at = (value) => from + ((turn(value) - turn(low)) / (turn(high) - turn(low))) * (to - from);
  const marks = log ? logTicks(low, high) : ticks(low, high);
  return { at, low, high, ticks: whole ? marks.filter(Number.isInteger) : marks };
}

function axes(x, y, xLabel, yLabel) {
  const group = make("g", { class: "axes" });
  for (const value of y.ticks) {
    const at = y.at(value);
    group.append(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at, class: "grid" }));
    group.append(make("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, short(value, 3)));
  }
  for (const value of x.ticks) {
    group.append(make("text", { x: x.at(value), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, short(value, 3)));
  }
  group.append(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM, class: "rule" }));
  group.append(make("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, xLabel));
  const middle = (TOP + HEIGHT - BOTTOM) / 2;
  group.append(make("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, yLabel));
  return group;
}

// Each stretch of known points is a path of its own, so that a run that diverged leaves a gap.
function trace(points, x, y) {
  let text = "", open = false;
  for (const [at, value] of points) {
    const known = value !== null && Number.isFinite(y.at(value)) && Number.isFinite(x.at(at));
    if (known) text += `${open ? "L" : "M"}${x.at(at).toFixed(1)} ${y.at(value).toFixed(1)}`;
    open = known;
  }
  return text;
}

function envelope(points, x, y) {
  const known = points.filter(([, , low, high]) => low !== null && high !== low);
  if (!known.length) return "";
  const upper = known.map(([at, , , high]) => `${x.at(at).toFixed(1)} ${y.at(high).toFixed(1)}`);
  const lower = known.map(([at, , low]) => `${x.at(at).toFixed(1)} ${y.at(low).toFixed(1)}`).reverse();
  return `M${upper.join("L")}L${lower.join("L")}Z`;
}

// lines: [{name, style, points: [[x, y, low, high], ...]}]; a style is a list of classes such as "c2 d1".
function linePanel({ title, lines, xLabel, yLabel, xs, ys, logX = false, logY = false }) {
  const x = scale(xs, LEFT, WIDTH - RIGHT, { log: logX, whole: xLabel === "round" });
  const y = scale(ys, HEIGHT - BOTTOM, TOP, { log: logY });
  const height = y.at;
  y.at = (value) => Math.max(TOP - 3, Math.min(HEIGHT - BOTTOM, height(value)));  // what is off the scale stays at its edge
  const label = `${yLabel} by ${xLabel}, ${title}: ${lines.length} lines`;
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0 });
  picture.append(axes(x, y, xLabel, yLabel));
  for (const line of lines) picture.append(make("path", { d: envelope(line.points, x, y), class: `band ${line.style}` }));
  for (const line of lines) {
    const path = make("path", { d: trace(line.points, x, y), class: `line ${line.style}`, "data-name": line.name });
    const known = line.points.filter(([, value]) => value !== null);
    picture.append(path);
    if (line.mark && known.length) {
      picture.append(make("text", { x: x.at(known.at(-1)[0]) - 3, y: y.at(known.at(-1)[1]) + 4, class: "mark" }, line.mark));
    }
    if (known.length === 1) {
      picture.append(make("circle", { cx: x.at(known[0][0]), cy: y.at(known[0][1]), r: 3, class: `dot ${line.style}` }));
    }
  }
  const guide = make("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "guide", visibility: "hidden" });
  picture.append(guide);
  follow(picture, guide, lines, x, { title, xLabel });
  return make("figure", { class: "panel" }, make("figcaption", {}, title), picture);
}

// The values under the pointer, or at the place that the arrow keys have moved to.
function follow(picture, guide, lines, x, { title, xLabel, nameOf = short, mark = () => {} }) {
  const places = [...new Set(lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const width = WIDTH;  // of this picture; the next chart may have another
  let chosen = -1;
  const nearest = (points, at) =>
    points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), points[0]);
  const show = (place) => {
    if (!places.length) return;
    chosen = Math.max(0, Math.min(places.length - 1, place));
    const at = places[chosen], middle = x.at(at);
    guide.setAttribute("x1", middle);
    guide.setAttribute("x2", middle);
    guide.setAttribute("visibility", "visible");
    mark(at);
    const rows = lines
      .filter((line) => line.points.length)
      .map((line) => ({ line, value: nearest(line.points, at)[1] }))
      .sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    const box = picture.getBoundingClientRect();
    tip(box.left + (middle / width) * box.width, box.top + window.scrollY, `${title}, ${xLabel} ${nameOf(at)}`, rows);
  };
  const hide = () => {
    guide.setAttribute("visibility", "hidden");
    mark(null);
    document.getElementById("tip").hidden = true;
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const pixel = ((event.clientX - box.left) / box.width) * width;
    const distances = places.map((at) => Math.abs(x.at(at) - pixel));
    show(distances.indexOf(Math.min(...distances)));
  });
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") hide();
    if (move === undefined) return;
    event.preventDefault();
    show(chosen + move);
  });
}

function tip(left, top, heading, rows) {
  const box = document.getElementById("tip");
  const list = rows.slice(0, 24).map(({ line, value }) =>
    make("li", {}, swatch(line.style), `${line.name} `, make("b", {}, value === null ? "none" : short(value))));
  if (rows.length > 24) list.push(make("li", {}, `and ${rows.length - 24} more`));
  box.replaceChildren(make("strong", {}, heading), make("ul", {}, ...list));
  box.hidden = false;
  const width = box.offsetWidth, edge = document.documentElement.clientWidth;
  box.style.left = `${left + 16 + width > edge ? Math.max(4, left - width - 16) : left + 16}px`;
  box.style.top = `${top + 8}px`;
}

function swatch(style) {
  const picture = make("svg", { viewBox: "0 0 28 10", class: "swatch", "aria-hidden": "true" });
  picture.append(make("path", { d: "M1 5L27 5", class: `line ${style}` }));
  return picture;
}

function legend(items) {
  const list = items.map(({ name, style }) => make("li", {}, swatch(style), name));
  return make("ul", { class: "legend" }, ...list);
}

// groups: [{name, values: one per series}]; series: [{name, style}].
function barPanel({ title, groups, series, xLabel, yLabel, high }) {
  const y = scale([0, high], HEIGHT - BOTTOM, TOP, { zero: true });
  const step = (WIDTH - LEFT - RIGHT) / groups.length, bar = (step * 0.84) / series.length;
  const x = { at: (k) => LEFT + step * (k + 0.5), ticks: [] };
  const label = `${yLabel} by ${xLabel}, ${title}, for ${series.map(({ name }) => name).join(", ")}`;
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  picture.append(axes(x, y, xLabel, yLabel));
  const every = Math.ceil((groups.length * 34) / (WIDTH - LEFT - RIGHT));
  groups.forEach(({ name, values }, k) => {
    values.forEach((value, j) => {
      const left = LEFT + step * (k + 0.08) + j * bar;
      const shape = make("rect", { x: left, y: y.at(value), width: bar, height: y.at(0) - y.at(value), class: `bar ${series[j].style}` });
      shape.append(make("title", {}, `${series[j].name}, ${xLabel} ${name}: ${value.toLocaleString("en")}`));
      picture.append(shape);
    });
    if (k % every) return;
    const text = name.length > 9 ? `${name.slice(0, 8)}…` : name;
    picture.append(make("text", { x: x.at(k), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, text));
  });
  return make("figure", { class: "panel" }, make("figcaption", {}, title), picture);
}

// The frame of a picture that has rows below each other.
function rowPicture(x, height, xLabel, label) {
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  for (const value of x.ticks) {
    picture.append(make("line", { x1: x.at(value), x2: x.at(value), y1: TOP, y2: height - BOTTOM, class: "grid" }));
    picture.append(make("text", { x: x.at(value), y: height - BOTTOM + 15, "text-anchor": "middle" }, short(value, 3)));
  }
  picture.append(make("text", { x: WIDTH / 2, y: height - 5, "text-anchor": "middle" }, xLabel));
  return picture;
}

// rows: [{name, style, values, mean}]: a dot for every value and a bar at their mean.
function stripPanel({ title, rows, xLabel, xs, whose = "every client" }) {
  const x = scale(xs, LEFT / 2, WIDTH - RIGHT);
  const label = `${xLabel} of ${whose}, ${title}: ${rows.map(({ name, mean }) => `${name} ${short(mean, 3)}`).join(", ")}`;
  const picture = rowPicture(x, TOP + 36 * rows.length + BOTTOM, xLabel, label);
  rows.forEach(({ name, style, values, mean }, k) => {
    const middle = TOP + 36 * k + 26;
    picture.append(make("text", { x: LEFT / 2, y: middle - 12 }, name));
    picture.append(make("line", { x1: LEFT / 2, x2: WIDTH - RIGHT, y1: middle, y2: middle, class: "grid" }));
    for (const { who, value } of values) {
      const dot = make("circle", { cx: Math.max(LEFT / 2, x.at(value)), cy: middle, r: 4, class: `dot ${style}` });
      dot.append(make("title", {}, `${name}, ${who}: ${short(value)}`));
      picture.append(dot);
    }
    if (values.length) {
      const place = Math.max(LEFT / 2, x.at(mean));
      picture.append(make("line", { x1: place, x2: place, y1: middle - 8, y2: middle + 8, class: "mean" }));
    }
  });
  return make("figure", { class: "panel" }, make("figcaption", {}, title), picture);
}

// A shaded cell per row and column, for what has too many bars.
function matrixPanel({ title, rows, columns, values, rowLabel, columnLabel }) {
  const high = most([1, ...values.flat()]);
  const wide = (WIDTH - LEFT - RIGHT) / columns.length, tall = Math.max(9, Math.min(20, 260 / rows.length));
  const height = TOP + tall * rows.length + BOTTOM;
  const label = `samples by ${rowLabel} and ${columnLabel}, ${title}; the fullest cell holds ${high}`;
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  const every = Math.ceil(14 / tall), each = Math.ceil(30 / wide);
  rows.forEach((name, k) => {
    const top = TOP + tall * k;
    if (k % every === 0) picture.append(make("text", { x: LEFT - 6, y: top + tall / 2 + 4, "text-anchor": "end" }, name.slice(0, 8)));
    columns.forEach((column, j) => {
      const cell = make("rect", { x: LEFT + wide * j, y: top, width: wide - 1, height: tall - 1, class: "cell" });
      cell.style.setProperty("--shade", values[k][j] / high);
      cell.append(make("title", {}, `${rowLabel} ${name}, ${columnLabel} ${column}: ${values[k][j]}`));
      picture.append(cell);
    });
  });
  columns.forEach((column, j) => {
    if (j % each) return;
    picture.append(make("text", { x: LEFT + wide * (j + 0.5), y: height - BOTTOM + 15, "text-anchor": "middle" }, column.slice(0, 7)));
  });
  picture.append(make("text", { x: (LEFT + WIDTH) / 2, y: height - 5, "text-anchor": "middle" }, columnLabel));
  const middle = (TOP + height - BOTTOM) / 2;
  picture.append(make("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, rowLabel));
  return make("figure", { class: "panel" }, make("figcaption", {}, title), picture);
}
