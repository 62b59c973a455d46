"""What a decision costs in tokens, against the size of the tree.

    python benchmarks/tokens.py                               writes benchmarks/tokens.md; some minutes
    pip install --no-deps mistral-common tiktoken regex       before it: count with a real tokenizer

Trees of simulated phases, grown in this process: by the search's own selection (uct), as one long path (deep), all from
the base (wide), and by UCT with proposals as long as a reply may be and every parameter changed (talkative). What is
counted is what would be sent: the requests the two agents make of the tree a decision may know, as the body of a chat
completion that `agents.llm.wire` makes of them.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import random
import statistics
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common import table, write_table
from llmzero import wiring
from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.counting import PIXELS_PER_TOKEN, image_tokens, text_tokens
from llmzero.agents.llm.prompt import Briefing
from llmzero.agents.llm.proposer import LLMProposer
from llmzero.agents.llm.replies import MAX_TEXT
from llmzero.agents.llm.stopper import AgentStopper
from llmzero.agents.llm.wire import body
from llmzero.agents.moves import draw_anywhere, drawable, put
from llmzero.agents.playbook import PlaybookProposer
from llmzero.agents.samplers import RandomProposer
from llmzero.agents.stopping import RuleStopper
from llmzero.domain.config import LLMConfig, RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.jobs import Weights
from llmzero.domain.llm import Reply, Request
from llmzero.domain.seeds import derive_seed
from llmzero.domain.series import MetricRow, eval_points
from llmzero.domain.types import ROOT, NodeId, Proposal, Selection
from llmzero.search.horizon import known
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase, train_job
from llmzero.search.uct import select
from llmzero.settings import load_settings
from llmzero.trainers.sim import SimTrainer

SIZES = (5, 20, 50, 100, 200, 500)
GOAL = 1.1
SEEDS = (0, 1, 2)
DECISIONS = 2
"""Of each seed, at each size."""

Pick = Callable[[Tree], Selection]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as sent, counted by the rule of `agents.llm.counting`; `text` keeps its words."""

    text: str
    text_tokens: int
    image_tokens: int

    @property
    def tokens(self) -> int:
        return self.text_tokens + self.image_tokens


def sent(request: Request) -> Sent:
    """What the endpoint receives: the schema first, as a provider's prompt has it, then the messages."""
    given = body(request, images=True, response_format=True)
    texts, images = [json.dumps(given["response_format"])], 0
    for message in given["messages"]:
        parts = message["content"]
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
            if part["type"] == "text":
                texts.append(part["text"])
            else:
                images += image_tokens(b64decode(part["image_url"]["url"].partition(",")[2]))
    text = "\n".join(texts)
    return Sent(text=text, text_tokens=text_tokens(text), image_tokens=images)


@dataclass(slots=True)
class Ear:
    """`ports.LLM` that keeps what it is asked and has no answer."""

    heard: list[Request] = field(default_factory=list)

    def complete(self, request: Request) -> Reply:
        self.heard.append(request)
        return Reply(error="nobody is asked")


@dataclass(frozen=True, slots=True)
class Talker:
    """`ports.Proposer`: a random draw of every parameter, told at the length a reply is cut to."""

    seed: int

    name = "talker"

    def propose(self, tree: Tree, parent: NodeId, space: Any) -> Proposal:
        ev = evidence_of(tree, parent, space)
        rng = random.Random(derive_seed(self.seed, len(tree.nodes)))
        words = "the reward rises slowly while the entropy falls and the KL term holds the policy back; "
        text = (words * 20)[:MAX_TEXT]
        changes = tuple(
            put(p.name, draw_anywhere(rng, p, ev.hyper.flat().get(p.name)), text[:300])
            for p in drawable(space, ev.hyper)
        )
        return Proposal(
            proposer=self.name,
            pathology=text[:60],
            diagnosis=text,
            evidence=(text[:300],) * 8,
            changes=changes,
            rationale=text,
            expected=text[:300],
        )


@dataclass(slots=True)
class Forest:
    """One growing tree and the rows of its phases."""

    tree: Tree
    rows: dict[NodeId, list[MetricRow]]
    work: Path

    def run(self, node: NodeId) -> None:
        """Train the phase that was proposed last."""
        phase = self.tree.nodes[node].phase
        base = Weights(path=str(self.work / "base"), digest="")
        start = Weights(path=str(self.work / phase.parent / "checkpoint"), digest="") if phase.parent else base
        self.rows[node] = []
        result = SimTrainer().train(
            train_job(self.tree, phase, start, base),
            None,  # type: ignore[arg-type]  # its task is never read
            report=self.rows[node].append,
            should_stop=lambda: False,
            workdir=self.work / node,
        )
        self.tree = apply(self.tree, PhaseFinished(node=node, result=result))


def grow(config: RunConfig, pick: Pick, proposer: Any, work: Path) -> Iterator[tuple[Forest, Selection]]:
    """Yields before each decision: the tree, and the node the next phase will start from."""
    tree = fold([RunStarted(run="tokens", config=config)])
    first = PhaseProposed(phase=base_phase(tree), selection=BASE_SELECTION, proposal=BASE_PROPOSAL)
    forest = Forest(apply(tree, first), {}, work)
    forest.run(ROOT)
    while len(forest.tree.nodes) <= config.nodes:
        selection = pick(known(forest.tree, len(forest.tree.nodes)))
        yield forest, selection
        proposal = proposer.propose(forest.tree, selection.parent, config.space)
        phase, proposal = next_phase(forest.tree, selection, proposal)
        forest.tree = apply(forest.tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))
        forest.run(phase.id)


def _deepest(tree: Tree) -> Selection:
    return Selection(parent=list(tree.nodes)[-1], kind="uct", reason="deep")


def _base(tree: Tree) -> Selection:
    return Selection(parent=ROOT, kind="uct", reason="wide")


SHAPES: dict[str, tuple[Pick, Callable[[int], Any]]] = {
    "uct": (select, RandomProposer),
    "deep": (_deepest, RandomProposer),
    "wide": (_base, RandomProposer),
    "talkative": (select, Talker),
}


def config_of(nodes: int, seed: int, steps: int = 60) -> RunConfig:
    """The default settings of the embedded base, trained by the simulator."""
    config = load_settings(None, {}, {})
    return replace(config, trainer="sim", nodes=nodes, seed=seed, steps=steps, workers=1, llm=LLMConfig(model="m"))


def asked(forest: Forest, selection: Selection, briefing: Briefing) -> dict[str, Sent]:
    """The two agents' requests at this point: the next proposal, and the newest phase judged at its last but one
    evaluation."""
    tree, ear = forest.tree, Ear()
    seen = known(tree, len(tree.nodes))
    rows_of = lambda node: forest.rows.get(node, [])  # noqa: E731
    proposer = LLMProposer(ear, briefing, rows_of, check_extra=lambda hyper: None, seed=0)
    proposer.propose(seen, selection.parent, tree.config.space)
    found = {"proposer": sent(ear.heard.pop())}
    newest = list(tree.nodes)[-1]
    if newest != ROOT:
        curve = eval_points(forest.rows[newest])[:-1]
        stopper = AgentStopper(ear, briefing, tree.config.stop)
        stopper.judge(known(tree, tree.nodes[newest].sequence), newest, curve, ())
        found["stopper"] = sent(ear.heard.pop())
    return found


def near(size: int, count: int) -> range:
    """The numbers of the `count` decisions that end in a tree of `size` phases."""
    return range(max(2, size - count + 1), size + 1)


def measure(
    shape: str, seed: int, *, sizes: Sequence[int], count: int, briefing: Briefing, steps: int = 60
) -> dict[int, list[dict[str, Sent]]]:
    """The requests of the last `count` decisions up to each tree size."""
    pick, proposer = SHAPES[shape]
    found: dict[int, list[dict[str, Sent]]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as work:
        for forest, selection in grow(config_of(max(sizes), seed, steps), pick, proposer(seed), Path(work)):
            number = len(forest.tree.nodes)
            for size in sizes:
                if number in near(size, count):
                    found[size].append(asked(forest, selection, briefing))
    return found


def stable_share(sents: Sequence[Sent]) -> float:
    """Share of the words that every one of the requests begins with: what a prompt cache can hold."""
    first, last = min(s.text for s in sents), max(s.text for s in sents)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return same / statistics.median(len(s.text) for s in sents)


# --- the table


def tekken() -> Callable[[str], int] | None:
    """A real tokenizer: Mistral's Tekken, from the package mistral-common and through tiktoken; None without them."""
    if not (importlib.util.find_spec("mistral_common") and importlib.util.find_spec("tiktoken")):
        return None
    import tiktoken

    found = importlib.resources.files("mistral_common").joinpath("data/tekken_240911.json").read_text("utf-8")
    told = json.loads(found)
    size = told["config"]["default_vocab_size"] - told["config"]["default_num_special_tokens"]
    ranks = {b64decode(entry["token_bytes"]): entry["rank"] for entry in told["vocab"][:size]}
    encoding = tiktoken.Encoding(
        name="tekken", pat_str=told["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}
    )
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def rows_of(found: dict[str, dict[int, list[dict[str, Sent]]]], agent: str, count: Count) -> list[list[str]]:
    """A row a shape and size: median and highest tokens, and their ratio to the smallest tree's."""
    rows = []
    for shape, by_size in found.items():
        first = 0.0
        for size, decisions in by_size.items():
            sents = [d[agent] for d in decisions if agent in d]
            words = [count(s.text) for s in sents]
            totals = [w + s.image_tokens for w, s in zip(words, sents, strict=True)]
            first = first or statistics.median(totals)
            cells = [f"{statistics.median(words):.0f}", f"{statistics.median(s.image_tokens for s in sents):.0f}"]
            cells += [f"{statistics.median(totals):.0f}", f"{max(totals)}"]
            cells += [f"{statistics.median(totals) / first:.3f}", f"{max(totals) / first:.3f}"]
            rows.append([shape, str(size), str(len(sents)), *cells, f"{stable_share(sents):.2f}"])
    return rows


def questions(proposer: Callable[[int], Any], nodes: int = 20) -> list[str]:
    """Phases, those where the rule would stop at least once, and all evaluations where it would, of each seed's tree.

    `--stopper both` asks the agent at those: once a phase where the agent always agrees, each time where it never does.
    """
    phases = first = every = 0
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as work:
            config = config_of(nodes, seed)
            *_, (forest, _) = grow(config, select, proposer(seed), Path(work))
            rule, tree = RuleStopper(config.stop), forest.tree
            for node in [n for n in tree.nodes.values() if n.id != ROOT]:
                rows = forest.rows[node.id]
                points, seen = eval_points(rows), known(tree, node.sequence)
                stops = [rule.latest(seen, node.id, points[:k], rows).action for k in range(1, len(points) + 1)]
                phases, first, every = phases + 1, first + ("stop" in stops), every + stops.count("stop")
    return [str(phases), f"{first / phases:.2f}", f"{every / phases:.2f}"]


def main() -> None:
    briefing, real = wiring.make_briefing(config_of(5, 0)), tekken()
    found: dict[str, dict[int, list[dict[str, Sent]]]] = {shape: {size: [] for size in SIZES} for shape in SHAPES}
    for shape in SHAPES:
        for seed in SEEDS:
            for size, decisions in measure(shape, seed, sizes=SIZES, count=DECISIONS, briefing=briefing).items():
                found[shape][size] += decisions
            print(f"{shape} seed {seed} done", flush=True)
    asks = [["playbook", *questions(PlaybookProposer)], ["random", *questions(RandomProposer)]]
    head = ["proposer", "phases", "questions a phase, agent agrees", "questions a phase, agent never agrees"]
    told = "## How often `--stopper both` asks\n\nTwenty phases by UCT, three seeds, phases trained to their end.\n\n"
    write_table("tokens.md", "\n\n".join([*blocks(found, real), told + table(head, asks)]))


def blocks(found: dict[str, dict[int, list[dict[str, Sent]]]], real: Count | None) -> list[str]:
    head = ["tree", "phases", "decisions", "text, median", "picture", "all, median", "all, max"]
    head += ["median / median at 5", "max / median at 5", "same prefix"]
    rule = "Mistral's Tekken tokenizer" if real else "the rule of llmzero/agents/llm/counting.py"
    tables = {agent: rows_of(found, agent, real or text_tokens) for agent in ("proposer", "stopper")}
    worst = max(float(row[-2]) for rows in tables.values() for row in rows)
    told = (
        f"Text is counted with {rule}, pictures as width x height / {PIXELS_PER_TOKEN}. `same prefix` is the share of "
        "the text that all requests of a row begin with, of all seeds: what a provider's prompt cache can charge less "
        f"for within a run. Goal: a decision at {SIZES[-1]} phases costs at most {GOAL} times one at {SIZES[0]}; the "
        f"highest single decision of any shape and size is {worst:.3f} times the median at {SIZES[0]}."
    )
    parts = ["# Tokens of a decision", (__doc__ or "").strip(), told]
    for agent, rows in tables.items():
        parts += [f"## The {agent}", table(head, rows)]
    return [*parts, *([f"## The rule of thumb\n\n{rule_error(found, real)}"] if real else [])]


def rule_error(found: dict[str, dict[int, list[dict[str, Sent]]]], real: Count) -> str:
    """How far the package's own counting is from a real tokenizer, over all requests."""
    shares: dict[str, list[float]] = {"proposer": [], "stopper": []}
    for by_size in found.values():
        for decisions in by_size.values():
            for decision in decisions:
                for agent, each in decision.items():
                    shares[agent].append(each.text_tokens / real(each.text))
    told = [f"{agent} {min(each):.2f} to {max(each):.2f}" for agent, each in shares.items()]
    return (
        f"Reservations and forecasts have no tokenizer: they count pieces of text (llmzero/agents/llm/counting.py). "
        f"Counted so, over Tekken's count: {', '.join(told)}."
    )


if __name__ == "__main__":
    main()
