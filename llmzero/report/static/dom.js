// Small helpers: elements from text only (never markup), numbers and times as people read them.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) node.append(child); // a string becomes a text node
  }
  return node;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  const text = size > 0 && size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  return text.replace(/\.?0+e/, "e").replace("e+", "e");
}

function score(value) {
  return value === null || value === undefined ? "–" : value.toFixed(3).replace("-", "−");
}

function plusMinus(value, se) {
  return value === null || value === undefined || se === null ? score(value) : `${score(value)} ± ${se.toFixed(3)}`;
}

function signed(value) {
  return value === null || value === undefined ? "–" : (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
}

function interval(change) {
  return `${signed(change.low)} to ${signed(change.high)}`;
}

function duration(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
}

// What model calls took: `12 calls (8 proposer, 4 stopper), 34,000 + 2,100 tokens (20,000 cached), $0.12`.
function modelCalls(entry) {
  const whole = (n) => n.toLocaleString("en");
  const agents = Object.entries(entry.by_agent).map(([name, each]) => `${each.calls} ${name}`);
  const who = agents.length > 1 ? ` (${agents.join(", ")})` : "";
  const failed = entry.failed ? `, ${entry.failed} without an answer` : "";
  const refused = entry.refused ? `, ${entry.refused} not made at the ceiling` : "";
  const cached = entry.cached_tokens ? ` (${whole(entry.cached_tokens)} cached)` : "";
  const lost = entry.lost ? ` (${entry.lost} tries without a token count)` : "";
  const some = entry.usd !== null && entry.unpriced ? ` (${entry.unpriced} calls without a price)` : "";
  const usd = entry.usd === null ? "no price known" : `$${entry.usd.toFixed(4)}${some}`;
  return `${entry.calls} ${entry.calls === 1 ? "call" : "calls"}${who}${failed}${refused}, ` +
    `${whole(entry.prompt_tokens)} + ${whole(entry.completion_tokens)} tokens${cached}${lost}, ${usd}`;
}

function spoken(name) {
  const words = (name || "").replaceAll("_", " ").replace(/\bkl\b/gi, "KL");
  return words === "none" || words === "healthy" ? "" : words;
}

function short(text, limit) {
  return text.length <= limit ? text : text.slice(0, limit - 1) + "…";
}

function changeText(changes) {
  return changes.map((c) => `${short(c.field, 32)} ${short(number(c.old), 16)}→${short(number(c.new), 16)}`).join(", ");
}

function table(headers, rows, kind = "") {
  const head = el("thead", {}, el("tr", {}, headers.map((h) => el("th", { scope: "col" }, h))));
  return el("table", { class: kind }, head, el("tbody", {}, rows));
}
