"""Openings: phases that start at the base. The first is the configured one; later ones learn from the earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llmzero.agents.evidence import Evidence, evidence_of, sibling_lines
from llmzero.agents.moves import Option, as_proposal, put, scale
from llmzero.agents.progress import bold
from llmzero.agents.remedies import after_collapse
from llmzero.agents.rules import diagnose
from llmzero.domain.strategy import best_node, diff
from llmzero.domain.types import ROOT, Change, FailureKind, HyperParams, Node, Proposal, Status

PATHOLOGY = "opening"


def openings(ev: Evidence, proposer: str) -> Iterator[Proposal]:
    """Ranked openings for a root: the configured one, then what earlier openings and the best strategy teach."""
    yield configured(ev, proposer)
    model = model_opening(ev)
    if model is None:
        return
    learned = tuple(_from_opening(ev, model, option, proposer) for option in lessons(ev, model))
    yield from learned[:1]
    yield from best_end(ev, proposer)
    yield from learned[1:]


def configured(ev: Evidence, proposer: str) -> Proposal:
    """The run's own hyperparameters, unchanged."""
    return Proposal(
        proposer=proposer,
        pathology=PATHOLOGY,
        diagnosis="No opening has used the configured values yet: there is nothing to diagnose.",
        rationale="Start with the configured hyperparameters unchanged, so that everything later has a reference.",
        expected="a first gain over the base, and metrics to diagnose",
        confidence=0.5,
    )


def model_opening(ev: Evidence) -> Node | None:
    """The opening to learn from: the best finished one, else the latest that ended, else the latest of all."""
    scored = [n for n in ev.children if n.result and n.result.status is Status.FINISHED and n.score is not None]
    if scored:
        return max(scored, key=lambda n: (n.score or 0.0, -n.sequence))
    ended = [n for n in ev.children if n.result]
    known = ended or list(ev.children)
    return known[-1] if known else None


def lessons(ev: Evidence, model: Node) -> tuple[Option, ...]:
    """What the model opening should have done differently; where it did well, the bolder variations first."""
    own = evidence_of(ev.tree, model.id, ev.space)
    if model.result and model.result.failure is FailureKind.NAN:
        broke = (f"opening {model.id} ended in NaN",)
        return tuple(_named(o, "collapse", f"Opening {model.id} broke down", broke) for o in after_collapse(own))
    if model.result and model.result.failure is FailureKind.OUT_OF_MEMORY:
        full = (f"opening {model.id} ran out of memory",)
        return (_named(_shrunk(own), "out_of_memory", f"Opening {model.id} did not fit into memory", full),)
    rule, lines = diagnose(own)[0]
    if rule.name not in ("healthy", "unmeasured"):
        title = f"In opening {model.id}: {rule.title[0].lower()}{rule.title[1:]}"
        found = tuple(_named(o, rule.name, title, lines, rule.told) for o in rule.remedy(own))
        return (
            *found,
            *(replace(o, diagnosis=f"A coordinated variation of {model.id}") for o in _bold(own, model, lines)),
        )
    return _bold(own, model, lines)


def _shrunk(own: Evidence) -> Option:
    return Option(
        changes=(
            scale(own, "prompts_per_step", 0.5, "half the prompts a step need less memory"),
            scale(own, "max_completion_tokens", 0.75, "shorter completions need less memory"),
            scale(own, "learning_rate", 0.7, "a smaller batch bears a smaller step"),
        ),
        rationale="Make the step small enough for the device, with a rate to match.",
        expected="a phase that fits",
        confidence=0.6,
        promise=1,
    )


def _bold(own: Evidence, model: Node, lines: tuple[str, ...]) -> tuple[Option, ...]:
    state = "still runs" if model.result is None else "shows no pathology"
    title = f"Opening {model.id} {state}: a coordinated variation of it"
    return tuple(_named(o, PATHOLOGY, title, lines) for o in bold(own))


def _named(option: Option, pathology: str, diagnosis: str, lines: tuple[str, ...], basis: str = "") -> Option:
    return replace(option, pathology=pathology, diagnosis=diagnosis, evidence=lines, basis=basis, kl_anchor=None)


def _from_opening(ev: Evidence, model: Node, option: Option, proposer: str) -> Proposal:
    """The option, fitted against the opening it corrects and then told as changes of the configured values."""
    own = evidence_of(ev.tree, model.id, ev.space)
    fitted = as_proposal(own, option, proposer)
    reasons = {c.field: c.reason for c in fitted.changes}
    target = own.hyper.with_values({c.field: c.value for c in fitted.changes})
    changes = changes_to(ev, target, reasons, f"as in opening {model.id}")
    return replace(fitted, changes=changes, evidence=(*fitted.evidence, *sibling_lines(ev)))


def best_end(ev: Evidence, proposer: str) -> Iterator[Proposal]:
    """The last phase of the best strategy, as an opening, where that strategy has more than one phase."""
    best = best_node(ev.tree)
    if best is None or best.parent in (None, ROOT):
        return
    reason = f"as in {best.id}, the last phase of the best strategy"
    yield Proposal(
        proposer=proposer,
        pathology=PATHOLOGY,
        diagnosis=f"The best strategy ended in {best.id} with settings no opening has tried.",
        evidence=(f"{best.id} scored {best.score or 0.0:.3f}", *sibling_lines(ev)),
        changes=changes_to(ev, best.phase.hyper, {}, reason),
        rationale="Open with the settings the best strategy arrived at: were they good late only, or from the start?",
        expected="a better first phase than the configured opening's, if those settings are good as such",
        confidence=0.4,
    )


def changes_to(ev: Evidence, target: HyperParams, reasons: dict[str, str], default: str) -> tuple[Change, ...]:
    """The changes that turn the node's hyperparameters into `target`, inside the space."""
    moved = diff(ev.hyper, target)
    return tuple(put(n, new, reasons.get(n, default)) for n, _, new in moved if n in ev.space.names)
