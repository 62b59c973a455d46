// The panel of one node: what was changed and why, how the phase went, what it cost.

const SMALL = [["reward", "reward"], ["kl", "KL to anchor, nats"], ["entropy", "entropy, nats"], ["grad_norm", "gradient norm"],
  ["mean_length_tokens", "length, tokens"], ["truncated_share", "truncated share"], ["zero_std_share", "zero-std share"]];

function nodePanel(data, id) {
  const byId = new Map(data.nodes.map((n) => [n.id, n]));
  const node = byId.get(id);
  return el("article", { class: "panel", "aria-live": "polite" },
    el("header", {},
      el("h3", {}, `${short(node.id, 12)} `, el("span", { class: `chip ${node.status}` }, `${MARK[node.status]} ${node.status}`),
        data.best && data.best.node === id && el("span", { class: "chip best" }, "★ best"),
        node.selection.kind === "fresh" && el("span", { class: "chip fresh" }, "fresh start")),
      el("p", { class: "big" }, plusMinus(node.score, node.se), node.score_change && el("span", { class: "muted" },
        ` ${signed(node.score_change.difference)} against ${node.parent} (95% interval ${interval(node.score_change)})`))),
    el("div", { class: "columns" },
      el("div", {}, trouble(node), proposal(node), changes(node), facts(node)),
      el("div", {}, validation(data, byId, node))),
    training(data, node));
}

function trouble(node) {
  const items = [];
  if (node.failure) items.push(["Failed", `${spoken(node.failure.kind)}: ${node.failure.message}`]);
  if (node.verdict && node.verdict.action === "stop") items.push([`Stopped at step ${node.verdict.at_step}`, node.verdict.reason]);
  if (node.lost) items.push(["Weights lost", node.lost]);
  return items.map(([name, text]) => el("p", { class: "notice" }, el("strong", {}, `${name}. `), short(text, 1200)));
}

function proposal(node) {
  const p = node.proposal;
  const why = spoken(p.pathology);
  if (!p.diagnosis && !p.rationale && !why) return [];
  return [
    why && el("h4", { class: "why" }, short(why, 80)),
    p.diagnosis && el("p", {}, short(p.diagnosis, 1200)),
    p.evidence.length > 0 && el("ul", { class: "evidence" }, p.evidence.map((e) => el("li", {}, short(e, 400)))),
    p.rationale && el("p", { class: "muted" }, short(p.rationale, 1200)),
    p.basis && el("p", { class: "muted" }, short(`Basis: ${p.basis}`, 400)),
  ];
}

function changes(node) {
  if (node.parent === null) return [];
  if (!node.changes.length) return el("p", { class: "muted" }, "Same hyperparameters as its parent.");
  return table(["changed", `from ${node.parent}`, "to", "reason"], node.changes.map((c) => el("tr", {},
    el("th", { scope: "row" }, short(c.field, 60)), el("td", {}, short(number(c.old), 60)),
    el("td", { class: "new" }, short(number(c.new), 60)), el("td", { class: "muted" }, short(c.reason, 300)))), "changes");
}

function facts(node) {
  const p = node.proposal;
  const subtasks = Object.entries(node.by_subtask).slice(0, 24).map(([k, v]) => `${short(k, 40)} ${score(v)}`).join(", ");
  const cost = node.cost && `${duration(node.cost.wall_s)} (${duration(node.cost.train_s)} training, ${duration(node.cost.eval_s)} ` +
    `evaluation), ${node.cost.generated_tokens.toLocaleString("en")} tokens`;
  const rows = [
    ["selected by", `${node.selection.kind}: ${node.selection.reason}`], ["steps", steps(node)],
    ["expected", p.expected], ["confidence", p.confidence === null ? "" : number(p.confidence)],
    ["proposer", [p.proposer, ...p.notes].filter(Boolean).join(" · ")], ["cost", cost], ["model calls", node.llm && modelCalls(node.llm)],
    ["held-out test", node.test_score === null ? "" : `${plusMinus(node.test_score, node.test_se)} on ${node.test_items} items`],
    ["by subtask", subtasks], ["KL anchor", node.phase.kl_anchor],
    ["checkpoint", node.checkpoint && `${node.checkpoint.path}, step ${node.checkpoint.step}`]];
  return el("dl", {}, rows.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, short(String(text), 800))]));
}

function steps(node) {
  const planned = node.phase.steps;
  return `${node.steps === planned ? planned : `${node.steps} of ${planned}`} in this phase, ${node.total_steps} from the base`;
}

function pathOf(byId, node) {
  const path = [];
  for (let at = node; at; at = byId.get(at.parent)) path.unshift(at);
  return path;
}

function pathPoints(path) {
  return path.flatMap((n) => n.curve.map((p) => [p.total_step, p.score, p.se]));
}

function validation(data, byId, node) {
  const path = pathOf(byId, node);
  const onBest = data.best_path.includes(node.id) && data.best_path.at(-1) === node.id;
  const series = [{ points: pathPoints(path), kind: "own", label: node.id, dots: true }];
  if (!onBest && data.best_path.length > 1) {
    series.unshift({ points: pathPoints(data.best_path.map((id) => byId.get(id))), kind: "other", label: "best" });
  }
  const marks = path.filter((n) => n.parent !== null).map((n) => [n.total_steps - n.steps, n.id]);
  return el("figure", {},
    el("figcaption", {}, "Validation score over total steps"),
    chart({ series, marks, width: 600, height: 290, xLabel: "steps from the base", title: `Validation score of ${node.id}` }),
    legend([["own", `path to ${node.id}, band ± 1 SE`], ...(series.length > 1 ? [["other", `best strategy, ${data.best.node}`]] : [])]));
}

function training(data, node) {
  const drawn = SMALL.filter(([name]) => node.series[name]);
  const missing = Object.entries(node.missing).slice(0, 12).map(([k, v]) => `${short(k, 40)}: ${short(v, 200)}`);
  return [
    drawn.length > 0 && el("div", { class: "small-charts" }, drawn.map(([name, title]) => el("figure", { title: data.metrics[name] },
      el("figcaption", {}, title, el("span", { class: "last" }, number(node.series[name].at(-1)[1]))),
      chart({ series: [{ points: node.series[name], kind: "own" }], title: `${title} of ${node.id}, by step` })))),
    drawn.length === 0 && node.parent !== null && el("p", { class: "empty" }, "No training metrics in this page."),
    missing.length > 0 && el("p", { class: "muted small" }, `Not measured: ${missing.join("; ")}`),
  ];
}
