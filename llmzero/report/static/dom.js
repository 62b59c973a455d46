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
