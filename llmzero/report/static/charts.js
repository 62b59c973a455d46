// Small line charts: SVG drawn by hand, coloured by class so that light, dark and print share one picture.

function niceTicks(low, high, count) {
  const raw = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((m) => m * power >= raw * 0.999) || 10);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(i * step);
  return ticks;
}

function padded(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 0.1;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

// series: [{points: [[x, y, se?]], kind, label, step, dots}]; marks: [[x, label]]
function chart({ series, width = 300, height = 130, xLabel = "", marks = [], xFormat = number, title }) {
  const filled = series.filter((s) => s.points.length);
  if (!filled.length) return el("p", { class: "empty" }, "No measurement yet.");
  const all = filled.flatMap((s) => s.points);
  const [yLow, yHigh] = padded(all.flatMap((p) => [p[1] - (p[2] || 0), p[1] + (p[2] || 0)]));
  const xs = all.map((p) => p[0]);
  const xLow = Math.min(...xs), xHigh = Math.max(...xs);
  const box = { left: 44, right: width - 12, top: marks.length ? 20 : 8, bottom: height - (xLabel ? 34 : 20) };
  const x = (v) => box.left + ((v - xLow) / (xHigh - xLow || 1)) * (box.right - box.left);
  const y = (v) => box.bottom - ((v - yLow) / (yHigh - yLow)) * (box.bottom - box.top);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title },
    axes({ box, x, y, xTicks: niceTicks(xLow, xHigh, width / 90), yTicks: niceTicks(yLow, yHigh, height / 45), xFormat }),
    xLabel && svg("text", { x: (box.left + box.right) / 2, y: height - 4, class: "axis middle" }, xLabel),
    marks.map(([at, label]) => svg("g", { class: "mark" },
      svg("line", { x1: x(at), x2: x(at), y1: box.top, y2: box.bottom }),
      svg("text", { x: x(at) + (at === xLow ? 0 : -3), y: 12 }, short(label, 12)))),
    filled.map((s) => line(s, x, y)));
}

function axes({ box, x, y, xTicks, yTicks, xFormat }) {
  return [
    yTicks.map((t) => svg("g", {},
      svg("line", { x1: box.left, x2: box.right, y1: y(t), y2: y(t), class: "rule" }),
      svg("text", { x: box.left - 6, y: y(t) + 3.5, class: "axis end" }, number(Number(t.toPrecision(6)))))),
    xTicks.map((t) => svg("text", { x: x(t), y: box.bottom + 15, class: "axis middle" }, xFormat(t))),
  ];
}

function line(s, x, y) {
  const corner = (p, i) => (s.step && i ? `H${x(p[0]).toFixed(1)}V` : `${i ? "L" : "M"}${x(p[0]).toFixed(1)},`);
  const path = s.points.map((p, i) => `${corner(p, i)}${y(p[1]).toFixed(1)}`).join("");
  const edge = (p, side) => `${x(p[0]).toFixed(1)},${y(p[1] + side * p[2]).toFixed(1)}`;
  const banded = s.points.filter((p) => p[2]);
  const ring = [...banded.map((p) => edge(p, 1)), ...[...banded].reverse().map((p) => edge(p, -1))];
  return svg("g", { class: `line ${s.kind}` },
    banded.length > 1 && svg("polygon", { points: ring.join(" "), class: "band" }),
    svg("path", { d: path }),
    s.dots && s.points.map((p) => svg("circle", { cx: x(p[0]), cy: y(p[1]), r: 2.6 },
      svg("title", {}, `${s.label}, step ${p[0]}: ${plusMinus(p[1], p[2] ?? null)}`))));
}

function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([kind, text]) => el("li", {},
    svg("svg", { viewBox: "0 0 22 8", class: "chart key" },
      svg("g", { class: `line ${kind}` }, svg("path", { d: "M0,4L22,4" }))), text)));
}
