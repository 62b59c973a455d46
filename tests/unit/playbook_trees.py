"""Small trees for the proposer and stopper tests, made of events as a controller would write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llmzero.domain.config import RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.space import SearchSpace, settle
from llmzero.domain.types import (
    ROOT,
    EvalPoint,
    FailureKind,
    HyperParams,
    MetricSummary,
    Phase,
    PhaseResult,
    Proposal,
    Selection,
    Status,
)
from llmzero.profiles import llm_space, nano_space

NANO = HyperParams(learning_rate=1e-4, kl_coef=0.02, group_size=8, prompts_per_step=8, max_completion_tokens=40)
LLM = HyperParams(learning_rate=1e-6, kl_coef=0.001, group_size=8, prompts_per_step=64, max_completion_tokens=1024)
SPACES = {"nano": (NANO, nano_space()), "llm": (LLM, llm_space())}


def config_of(hyper: HyperParams = NANO, space: SearchSpace | None = None) -> RunConfig:
    return RunConfig(hyper=hyper, space=space or nano_space(), steps=60, seed=5)


def metric(
    first: float, window: float | None = None, *, spikes: int = 0, high: float | None = None, steps: int = 60
) -> MetricSummary:
    """A metric that moves in a straight line from `first` to `window` over a phase."""
    last = first if window is None else window
    return MetricSummary(
        first=first,
        last=last,
        mean=(first + last) / 2,
        low=min(first, last),
        high=max(first, last) if high is None else high,
        slope=(last - first) / steps,
        window_mean=last,
        spikes=spikes,
        count=steps,
    )


def sound() -> dict[str, MetricSummary]:
    """A phase without any sign of a pathology: reward up, entropy somewhat down, a little KL."""
    return {
        "reward": metric(0.4, 0.6),
        "reward_std": metric(0.45, 0.42),
        "zero_std_share": metric(0.2, 0.2),
        "kl": metric(0.001, 0.03),
        "entropy": metric(0.5, 0.38),
        "grad_norm": metric(0.5, 0.5),
        "truncated_share": metric(0.02, 0.01),
        "mean_length_tokens": metric(18.0, 18.5),
    }


def curve(*scores: float, se: float = 0.02, every: int = 10) -> tuple[EvalPoint, ...]:
    return tuple(EvalPoint((i + 1) * every, score, se) for i, score in enumerate(scores))


def outcome(
    score: float | None = 0.55,
    *,
    summaries: Mapping[str, MetricSummary] | None = None,
    points: tuple[EvalPoint, ...] = (),
    status: Status = Status.FINISHED,
    se: float = 0.02,
    missing: Mapping[str, str] | None = None,
    failure: FailureKind | None = None,
    steps: int = 60,
) -> PhaseResult:
    return PhaseResult(
        status=status,
        steps_done=steps,
        score=score,
        score_se=se if score is not None else None,
        curve=points,
        summaries=sound() if summaries is None else summaries,
        missing=missing or {},
        by_subtask={"add": 0.4, "delete": 0.7},
        failure=failure,
    )


def root_tree(config: RunConfig | None = None, score: float = 0.4) -> Tree:
    """A run whose base model was measured."""
    config = config or config_of()
    base = Phase(id=ROOT, parent=None, hyper=config.hyper, steps=0, eval_every=10, seed=1)
    first = PhaseProposed(
        phase=base,
        selection=Selection(parent=ROOT, kind="base", reason="base"),
        proposal=Proposal(proposer="test", pathology="base", diagnosis="the base"),
    )
    done = PhaseFinished(node=ROOT, result=PhaseResult(status=Status.FINISHED, score=score, score_se=0.02))
    return fold([RunStarted(run="test", config=config), first, done])


def propose(tree: Tree, parent: str, proposal: Proposal) -> Tree:
    """The tree after the controller accepted a proposal; the new phase runs."""
    asked = tree.nodes[parent].phase.hyper.with_values({c.field: c.value for c in proposal.changes})
    phase = Phase(
        id=f"n{len(tree.nodes)}",
        parent=parent,
        hyper=settle(asked)[0],
        steps=proposal.steps or tree.config.steps,
        eval_every=tree.config.eval.every,
        seed=1,
        kl_anchor=proposal.kl_anchor or tree.config.kl_anchor,
    )
    chosen = Selection(parent=parent, kind="uct", reason="test")
    return apply(tree, PhaseProposed(phase=phase, selection=chosen, proposal=proposal))


def finish(tree: Tree, result: PhaseResult) -> Tree:
    """The tree after its newest phase ended."""
    return apply(tree, PhaseFinished(node=list(tree.nodes)[-1], result=result))


def child(tree: Tree, parent: str, hyper: HyperParams, result: PhaseResult | None, *, pathology: str = "test") -> Tree:
    """The tree with one more phase of the given hyperparameters under `parent`."""
    proposal = Proposal(proposer="test", pathology=pathology, diagnosis="test")
    node = f"n{len(tree.nodes)}"
    phase = Phase(id=node, parent=parent, hyper=hyper, steps=tree.config.steps, eval_every=10, seed=1)
    chosen = Selection(parent=parent, kind="uct", reason="test")
    tree = apply(tree, PhaseProposed(phase=phase, selection=chosen, proposal=proposal))
    return tree if result is None else apply(tree, PhaseFinished(node=node, result=result))


def grown(result: PhaseResult, *, scale: str = "nano", **values: object) -> tuple[Tree, SearchSpace]:
    """A base and one phase n1 with this result, at the scale of a nano base or of a real LLM."""
    hyper, space = SPACES[scale]
    tree = root_tree(config_of(hyper, space))
    return child(tree, ROOT, replace(hyper, **values), result), space  # type: ignore[arg-type]
