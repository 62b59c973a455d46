"""The playbook proposer: reads the parent's summaries, names a pathology, answers with coordinated changes.

It needs no model and no network, and it is what a language model's proposals are compared with and fall back to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from llmzero.agents.evidence import Evidence, evidence_of, gained, outcome, sibling_lines, subtask_line, unread
from llmzero.agents.moves import (
    Option,
    as_proposal,
    changes_something,
    direction,
    draw_near,
    drawable,
    likeness,
    put,
    settings,
    tried,
)
from llmzero.agents.moves import too_big as needs_too_much_memory
from llmzero.agents.openings import openings
from llmzero.agents.rules import Rule, diagnose
from llmzero.domain.events import Tree
from llmzero.domain.seeds import derive_seed
from llmzero.domain.space import SearchSpace
from llmzero.domain.strategy import best_node
from llmzero.domain.types import ROOT, HyperParams, NodeId, Proposal

DRAWS = 200
"""Seeded draws tried before giving up on a new set of hyperparameters."""
DISCOURAGED = -0.5
"""Summed likeness to siblings times their outcome; below it an option goes to the end of the queue."""
UNCERTAIN = 0.15
"""Confidence of a seeded draw: no more than a guess."""


def answers(ev: Evidence, proposer: str) -> tuple[Proposal, ...]:
    """Ranked answers to what the node shows: its first pathology's options, then the other pathologies' first ones."""
    found = diagnose(ev)
    (rule, lines), others = found[0], found[1:]
    options = [_told(ev, rule, lines, option) for option in rule.remedy(ev)]
    if len(options) > 1 and _repeats(ev, rule):
        options.append(options.pop(0))
    options += [_told(ev, other, seen, other.remedy(ev)[0]) for other, seen in others]
    return _by_support(ev, [as_proposal(ev, option, proposer) for option in options])


def _told(ev: Evidence, rule: Rule, lines: tuple[str, ...], option: Option) -> Option:
    story = (*lines, *subtask_line(ev), *unread(ev), *sibling_lines(ev))
    return replace(option, pathology=rule.name, diagnosis=f"{rule.title}: {lines[0]}.", evidence=story, basis=rule.told)


def _repeats(ev: Evidence, rule: Rule) -> bool:
    """Whether the node itself was the usual answer to this very pathology, and did not help."""
    return ev.node.proposal.pathology == rule.name and rule.name != "healthy" and gained(ev) is False


def _by_support(ev: Evidence, proposals: list[Proposal]) -> tuple[Proposal, ...]:
    """The same order, but for proposals that resemble siblings which did badly: those go last."""
    told = [(direction(ev.hyper, c.phase.hyper), o) for c in ev.children if (o := outcome(ev, c)) is not None]

    def discouraged(proposal: Proposal) -> bool:
        own = direction(ev.hyper, settings(ev, proposal)[0])
        return sum(came * likeness(own, other) for other, came in told) < DISCOURAGED

    return tuple(sorted(proposals, key=discouraged))


def near_draws(ev: Evidence, seed: int, proposer: str) -> Iterator[Proposal]:
    """Seeded variations of three to five parameters near the best known values."""
    center, name = _center(ev)
    able = drawable(ev.space, center)
    for attempt in range(DRAWS if able else 0):
        rng = random.Random(derive_seed(seed, proposer, ev.node.id, len(ev.children), attempt))
        chosen = rng.sample(able, min(len(able), rng.randint(3, 5)))
        drawn = {p.name: draw_near(rng, p, center.flat().get(p.name)) for p in chosen}
        values = {p.name: center.flat().get(p.name) for p in ev.space.parameters} | drawn
        reason = f"seeded draw near {name}'s values"
        option = Option(
            changes=tuple(put(field, value, reason) for field, value in values.items()),
            rationale=f"Every answer in the playbook was tried here: a seeded variation near {name}.",
            expected="unknown: exploration",
            confidence=UNCERTAIN,
            pathology="exhausted",
            diagnosis=f"All {len(ev.children)} earlier children used up the playbook's answers.",
            evidence=sibling_lines(ev),
        )
        yield as_proposal(ev, option, proposer)


def _center(ev: Evidence) -> tuple[HyperParams, str]:
    """Values to vary: the best strategy's last phase for an opening, the node's own otherwise."""
    best = best_node(ev.tree)
    if ev.node.id == ROOT and best is not None:
        return best.phase.hyper, best.id
    return ev.hyper, ev.node.id


def first_new(ev: Evidence, candidates: Iterable[Proposal], *, minimum: int = 1) -> Proposal | None:
    """The first candidate that is no sibling's phase, changes at least `minimum` fields and fits into memory."""
    fits = (p for p in candidates if not tried(ev, p) and not needs_too_much_memory(ev, p))
    return next((p for p in fits if len(p.changes) >= minimum and (minimum == 0 or changes_something(ev, p))), None)


def another_length(ev: Evidence, proposer: str) -> Proposal:
    """The last way out, where the space has no new point: the parent's values for a number of steps not yet tried."""
    config = ev.tree.config
    used = {child.phase.steps for child in ev.children} | {ev.node.phase.steps}
    every = max(1, config.eval.every)
    steps = next(s for k in range(len(used) + 1) if (s := config.steps + k * every) not in used)
    return Proposal(
        proposer=proposer,
        pathology="exhausted",
        diagnosis="The search space offers no phase from here that was not tried.",
        rationale=f"Train with the parent's values for {steps} steps, a length not yet tried.",
        steps=steps,
        expected="unknown: exploration",
        confidence=UNCERTAIN,
    )


class PlaybookProposer:
    """Rules instead of a language model. The same tree, parent, space and seed always give the same proposal."""

    name = "playbook"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        """The best answer to what `parent` shows that none of its children has tried."""
        ev = evidence_of(tree, parent, space)
        ranked = openings(ev, self.name) if parent == ROOT else iter(answers(ev, self.name))
        minimum = 0 if parent == ROOT else 1
        return (
            first_new(ev, ranked, minimum=minimum)
            or first_new(ev, near_draws(ev, self._seed, self.name))
            or another_length(ev, self.name)
        )
