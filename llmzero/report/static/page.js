// The page: reads the data block, builds every section, keeps the selected node.

function header(data) {
  const how = data.headline.how;
  return el("header", { class: "top" },
    el("p", { class: "eyebrow" }, `LLMZero · ${short(data.run, 80)} · ${short(data.task, 60)} · ${short(data.model, 80)}`),
    el("h1", {}, short(data.headline.text, 400)),
    el("div", { class: "tiles" },
      tile("Validation", data.headline.validation), tile("Held-out test", data.headline.test),
      el("div", { class: "tile" }, el("h2", {}, "Search"), el("p", { class: "big" }, counted(data)), el("p", { class: "muted" }, spent(data)),
        data.cost.llm && el("p", { class: "muted small" }, `Model: ${modelCalls(data.cost.llm)}`))),
    how.length > 0 && el("ol", { class: "how", "aria-label": "What did it" }, how.map((g) => el("li", {},
      el("a", { href: `#${encodeURIComponent(g.node)}`, "data-node": g.node }, short(g.node, 12)), " ",
      el("strong", { class: g.gain < 0 ? "loss" : "gain" }, signed(g.gain)), " ",
      g.pathology && el("em", {}, `${short(g.pathology, 60)}: `), short(g.changes, 300)))));
}

function tile(name, change) {
  if (!change) return el("div", { class: "tile" }, el("h2", {}, name), el("p", { class: "big" }, "–"), el("p", { class: "muted" }, "not known yet"));
  return el("div", { class: "tile" }, el("h2", {}, name),
    el("p", { class: "big" }, score(change.from), el("span", { class: "arrow" }, " → "), el("strong", {}, score(change.to))),
    el("p", { class: "muted" }, `${signed(change.difference)} (95% interval ${interval(change)})`));
}

function counted(data) {
  const phases = data.nodes.filter((n) => n.parent !== null).length;
  return phases === 1 ? "1 phase" : `${phases} phases`;
}

function spent(data) {
  const counts = ["finished", "stopped", "failed", "running"]
    .map((s) => [data.nodes.filter((n) => n.parent !== null && n.status === s).length, s])
    .filter(([count]) => count).map(([count, s]) => `${count} ${s}`);
  return [...counts, `${duration(data.cost.wall_s)} of worker time`].join(", ");
}

function treeSection(data, canvas) {
  const key = Object.entries(MARK).map(([status, mark]) => el("li", {}, el("span", { class: `chip ${status}` }, `${mark} ${status}`)));
  return section("Strategy tree", "Each box is a trained phase, started from the weights of the box before it; colour is the validation score.",
    el("div", { class: "scroll", tabindex: -1 }, canvas),
    el("ul", { class: "legend" }, key, el("li", {}, el("span", { class: "chip best" }, "★ best strategy, thick line")),
      el("li", {}, el("span", { class: "chip fresh" }, "dashed line: fresh start from the base")),
      el("li", { class: "muted" }, "arrow keys move between nodes")));
}

function section(title, note, ...content) {
  return el("section", {}, el("h2", {}, title), note && el("p", { class: "note" }, note), content);
}

// The staircase: a row a stage; a value stands out where the stage changed it.
function stagesSection(data) {
  const stages = data.best ? data.best.stages : [];
  if (!stages.length) return section("Best strategy", "", el("p", { class: "empty" }, "No phase has beaten the base model yet."));
  const moved = new Set(stages.flatMap((s) => s.changes.map((c) => c.field)));
  const names = Object.keys(stages[0].hyper).filter((n) => moved.has(n));
  const rows = stages.map((s) => {
    const changed = new Set(s.changes.map((c) => c.field));
    return el("tr", {}, el("th", { scope: "row" }, `${s.stage} · ${short(s.node, 12)}`),
      el("td", {}, s.handover_step === null || s.handover_step === s.steps ? s.steps : `${s.handover_step} of ${s.steps}`),
      names.map((n) => el("td", { class: changed.has(n) ? "new" : "same" }, short(number(s.hyper[n]), 40))),
      el("td", {}, plusMinus(s.score, s.se)));
  });
  const still = Object.entries(stages[0].hyper).filter(([n]) => !moved.has(n)).slice(0, 60).map(([n, v]) => `${short(n, 60)} ${short(number(v), 60)}`);
  return section("Best strategy", "A row a stage; values a stage changed stand out. Steps are those whose weights were handed on, of those trained.",
    el("div", { class: "scroll" }, table(["stage", "steps", ...names.map((n) => short(n, 40)), "score"], rows, "stairs")),
    el("p", { class: "muted small" }, `Unchanged: ${still.join(", ")}`));
}

function anytimeSection(data) {
  const points = data.anytime.map((p) => [p.worker_s / 60, p.best]);
  const marks = data.anytime.filter((p) => p.improved).map((p) => [p.worker_s / 60, p.node]);
  return section("Best score so far", "Validation score of the best finished node over worker time, in the order the phases began.",
    el("figure", { class: "wide" }, chart({ series: [{ points, kind: "own", step: true }], marks, width: 1000, height: 210,
      xLabel: "worker minutes", title: "Best score so far over worker time" })));
}

function configSection(data) {
  return el("details", {}, el("summary", {}, "Configuration of the run"), el("dl", { class: "config" }, flat(data.config)));
}

function flat(value, prefix = "") {
  return Object.entries(value).flatMap(([key, item]) => {
    const name = short(prefix + key, 120);
    if (item && typeof item === "object" && !Array.isArray(item)) return flat(item, `${name}.`);
    return [el("dt", {}, name), el("dd", {}, short(Array.isArray(item) ? JSON.stringify(item) : number(item), 2000))];
  });
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.querySelector("main");
  root.append(header(data));
  if (data.nodes.length) {
    const holder = el("div", { class: "holder" });
    const select = (id) => {
      for (const [other, button] of tree.buttons) {
        button.tabIndex = other === id ? 0 : -1;
        button.setAttribute("aria-selected", other === id);
      }
      holder.replaceChildren(nodePanel(data, id));
    };
    const tree = drawTree(data, select);
    root.append(treeSection(data, tree.canvas), holder, stagesSection(data), data.anytime.length > 1 && anytimeSection(data) || "");
    root.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-node]");
      if (!link) return;
      event.preventDefault();
      select(link.dataset.node);
      tree.buttons.get(link.dataset.node).focus();
    });
    select(data.best ? data.best.node : data.nodes[0].id);
  }
  root.append(configSection(data));
}

main();
