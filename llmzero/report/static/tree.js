// The strategy tree: a tidy left-to-right layout, edges in SVG, nodes as buttons so that they can be reached by keyboard.

const NODE = { width: 110, height: 46, row: 80, pad: 6, gap: 106 };
const BRIEF = { learning_rate: "lr", kl_coef: "kl", temperature: "temp", max_completion_tokens: "max tokens", group_size: "group",
  prompts_per_step: "prompts", updates_per_batch: "updates", entropy_coef: "entropy", advantage_norm: "adv norm",
  max_grad_norm: "max grad", lr_schedule: "schedule", warmup_steps: "warmup", mask_truncated: "mask cut", clip_high: "clip high" };
const MARK = { finished: "●", stopped: "■", failed: "✕", running: "▶" };

// A first child sits on its parent's row, so that a strategy reads as one straight line; every other subtree takes the
// first row that is free at all of its depths.
function layout(nodes) {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const places = new Map(), free = [];
  const deepest = (node) => Math.max(node.depth, ...node.order.map((id) => deepest(byId.get(id))));
  const put = (node) => {
    const row = Math.max(0, ...free.slice(node.depth, deepest(node) + 1).map((r) => r || 0));
    places.set(node.id, { depth: node.depth, row, node });
    free[node.depth] = row + 1;
    for (let d = 0; d < node.depth; d += 1) free[d] = free[d] || 0;
    node.order.forEach((id, i) => {
      const child = byId.get(id);
      for (let d = child.depth; i === 0 && d <= deepest(child); d += 1) free[d] = Math.max(free[d] || 0, row);
      put(child);
    });
  };
  nodes.filter((n) => n.parent === null).forEach(put);
  return places;
}


function drawTree(data, select) {
  const best = new Set(data.best_path);
  for (const n of data.nodes) n.order = [...n.children].sort((a, b) => best.has(b) - best.has(a));
  const places = layout(data.nodes);
  const depth = Math.max(...data.nodes.map((n) => n.depth));
  const room = Math.min(1216, document.documentElement.clientWidth - 48) - NODE.width - 2 * NODE.pad;
  const column = Math.min(330, Math.max(NODE.width + NODE.gap, depth ? room / depth : 0));
  const at = (p) => ({ x: NODE.pad + p.depth * column, y: NODE.pad + 12 + p.row * NODE.row });
  const width = at({ depth, row: 0 }).x + NODE.width + NODE.pad;
  const height = Math.max(...[...places.values()].map((p) => at(p).y)) + NODE.height + NODE.pad;
  const canvas = el("div", { class: "canvas", role: "tree", "aria-label": "Strategy tree" });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const edges = svg("svg", { width, height, class: "edges", "aria-hidden": "true" });
  canvas.append(edges);
  // Best edges last, so that they lie above the others.
  const drawn = [...places.values()].sort((a, b) => best.has(a.node.id) - best.has(b.node.id));
  for (const place of drawn.filter((p) => p.node.parent !== null)) {
    const from = at(places.get(place.node.parent)), to = at(place);
    edges.append(edge(from, to, place.node, best.has(place.node.id)));
    canvas.append(edgeLabel(from, to, place.node, column));
  }
  const ordered = [...places.values()].sort((a, b) => a.row - b.row || a.depth - b.depth);
  const buttons = new Map(ordered.map((p) => [p.node.id, nodeButton(data, p.node, at(p), best, select)]));
  canvas.append(...buttons.values());
  canvas.addEventListener("keydown", (event) => moveFocus(event, places, buttons));
  return { canvas, buttons };
}

function edge(from, to, node, onBest) {
  const x1 = from.x + NODE.width, y1 = from.y + NODE.height / 2, y2 = to.y + NODE.height / 2;
  const bend = x1 + 16, radius = Math.min(8, Math.abs(y2 - y1) / 2);
  const down = `H${bend - radius}Q${bend},${y1} ${bend},${y1 + radius}V${y2 - radius}Q${bend},${y2} ${bend + radius},${y2}`;
  const kind = `edge ${onBest ? "best" : ""} ${node.selection.kind === "fresh" ? "fresh" : ""}`;
  return svg("path", { d: `M${x1},${y1}${y1 === y2 ? "" : down}H${to.x}`, class: kind });
}

function edgeLabel(from, to, node, column) {
  const same = node.depth === 1 ? "starting values" : "same values";
  const what = changeText(node.changes) || same;
  const brief = changeText(node.changes.map((c) => ({ ...c, field: Object.hasOwn(BRIEF, c.field) ? BRIEF[c.field] : c.field }))) || same;
  const why = spoken(node.proposal.pathology);
  const label = el("div", { class: "edge-label", title: short(why ? `${why}: ${what}` : what, 600) },
    el("span", { class: "why" }, node.selection.kind === "fresh" ? "fresh start" : short(why || (node.depth === 1 ? "opening" : "go on"), 80)),
    el("span", { class: "what" }, short(brief, 160)));
  label.style.left = `${from.x + NODE.width + 21}px`;
  label.style.top = `${to.y + NODE.height / 2 - 19}px`;
  label.style.width = `${column - NODE.width - 23}px`;
  return label;
}

function nodeButton(data, node, place, best, select) {
  const isBest = data.best && data.best.node === node.id;
  const kind = `node ${node.status} ${best.has(node.id) ? "on-best" : ""} ${isBest ? "is-best" : ""}`;
  const name = node.parent === null ? `${node.id} base` : node.id;
  const button = el("button", { class: kind, type: "button", role: "treeitem", tabindex: -1, "aria-level": node.depth + 1,
    "aria-label": `${name}, ${node.status}, score ${score(node.score)}${isBest ? ", best" : ""}` },
    el("span", { class: "name" }, el("span", { class: "glyph" }, MARK[node.status]), short(name, 12), isBest && el("span", { class: "star" }, "★")),
    el("span", { class: "value" }, node.score === null ? statusText(node) : plusMinus(node.score, node.se)));
  button.style.left = `${place.x}px`;
  button.style.top = `${place.y}px`;
  if (node.score !== null) button.style.setProperty("--share", `${Math.round(100 * scoreShare(data, node.score))}%`);
  button.addEventListener("click", () => select(node.id));
  return button;
}

function scoreShare(data, value) {
  const scores = data.nodes.map((n) => n.score).filter((s) => s !== null);
  const low = Math.min(...scores), high = Math.max(...scores);
  return high > low ? (value - low) / (high - low) : 0.5;
}

function statusText(node) {
  if (node.status === "failed") return short(`failed: ${spoken(node.failure ? node.failure.kind : "")}`, 22);
  if (node.status === "running" && node.curve.length) return `${score(node.curve.at(-1).score)} so far`;
  return node.status;
}

function moveFocus(event, places, buttons) {
  const order = [...buttons.keys()];
  const id = order.find((n) => buttons.get(n) === document.activeElement);
  if (!id) return;
  const { node } = places.get(id);
  const index = order.indexOf(id);
  const target = { ArrowLeft: node.parent, ArrowRight: node.order[0], ArrowUp: order[index - 1], ArrowDown: order[index + 1],
    Home: order[0], End: order.at(-1) }[event.key];
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  if (target === undefined || target === null) return;
  for (const button of buttons.values()) button.tabIndex = -1;
  buttons.get(target).tabIndex = 0;
  buttons.get(target).focus();
}
