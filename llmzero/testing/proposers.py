"""The conformance suite of `ports.Proposer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.series import MetricRow, summarise
from llmzero.domain.space import Parameter, SearchSpace
from llmzero.domain.strategy import phase_diff
from llmzero.domain.types import ROOT, HyperParams, Node, NodeId, PhaseResult, Proposal, Selection, Status
from llmzero.ports import Proposer
from llmzero.profiles import llm_space, nano_space
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase
from llmzero.testing.checks import is_one_line, made, survives_json

SEED = 11
NARROW = SearchSpace(
    (
        Parameter(name="learning_rate", kind="log", low=1e-6, high=1e-3),
        Parameter(name="loss_type", kind="choice", choices=("grpo", "dapo")),
    )
)
CONFIGS: dict[str, RunConfig] = {
    "nano": RunConfig(
        hyper=HyperParams(learning_rate=1e-4, kl_coef=0.02, max_completion_tokens=40), space=nano_space(), seed=SEED
    ),
    "LLM": RunConfig(space=llm_space(), seed=SEED),
    "narrow": RunConfig(hyper=HyperParams(learning_rate=1e-4), space=NARROW, seed=SEED),
}
SHAPES: dict[str, Callable[[int], NodeId]] = {
    "openings": lambda number: ROOT,
    "children of one": lambda number: ROOT if number == 0 else "n1",
    "a chain": lambda number: f"n{number}",
}
"""The parent of the k-th phase of a tree."""


class ProposerContract:
    """What every proposer promises: new, changing proposals inside the space, from the tree alone.

    The trees hold finished, failed and running phases, gains and losses. `count` is how many phases each grows to:
    lower it for a proposer that is slow. The factory is given what it takes of `seed`, `config` and `rows_of`; one
    that asks a language model needs `make` overridden, with a fake that answers the same question the same way.
    """

    factory: ClassVar[Callable[..., Proposer]]
    count: ClassVar[int] = 16

    def make(self) -> Proposer:
        return made(type(self).factory, seed=SEED, config=RunConfig(seed=SEED), rows_of=lambda node: ())

    def test_it_signs_its_proposals(self) -> None:
        proposer = self.make()
        assert isinstance(proposer.name, str) and proposer.name, f"name is {proposer.name!r}"
        for where, _, node in self._proposed():
            said, notes = node.proposal.proposer, node.proposal.notes
            signed = said == proposer.name or (said and notes)
            assert signed, f"{where}: proposer is {said!r}, not {proposer.name!r}, and no note says why"

    def test_every_value_is_inside_the_space(self) -> None:
        for where, tree, node in self._proposed():
            values = {change.field: change.value for change in node.proposal.changes}
            assert len(values) == len(node.proposal.changes), f"{where}: a field is set twice"
            outside = sorted(set(values) - set(tree.config.space.names))
            assert not outside, f"{where}: {outside} are not in the space"
            clamped, notes = tree.config.space.clamp(values)
            assert clamped == values, f"{where}: {notes} (use space.clamp)"
            steps = node.proposal.steps
            assert steps is None or steps > 0, f"{where}: steps is {steps}"

    def test_every_phase_differs_from_its_parent(self) -> None:
        for where, tree, node in self._proposed():
            parent = tree.nodes[node.parent or ROOT]
            assert parent.id == ROOT or phase_diff(parent, node), f"{where}: trains its parent's phase once more"

    def test_every_phase_differs_from_its_siblings(self) -> None:
        for where, tree, node in self._proposed():
            siblings = [tree.nodes[n] for n in tree.nodes[node.parent or ROOT].children if n != node.id]
            twin = next((s.id for s in siblings if not phase_diff(s, node)), "")
            assert not twin, f"{where}: the same phase as its sibling {twin}"

    def test_every_proposal_says_why(self) -> None:
        for where, _, node in self._proposed():
            proposal = node.proposal
            for word in ("pathology", "diagnosis", "rationale"):
                assert getattr(proposal, word).strip(), f"{where}: {word} is empty"
            assert is_one_line(proposal.pathology), f"{where}: pathology is a name, not a text"
            assert 0 <= (proposal.confidence or 0.0) <= 1, f"{where}: confidence is {proposal.confidence}"

    def test_the_same_tree_gives_the_same_proposal(self) -> None:
        for where, tree in self._trees():
            for parent in (ROOT, "n1"):
                proposer = self.make()
                first = proposer.propose(tree, parent, tree.config.space)
                again = proposer.propose(tree, parent, tree.config.space)
                assert again == first, f"{where}, under {parent}: asked again, the proposal is another"
                new = self.make().propose(tree, parent, tree.config.space)
                assert new == first, f"{where}, under {parent}: after a resume the proposal is another"

    def test_the_tree_is_left_alone(self) -> None:
        for where, tree in self._trees():
            before = to_json(tree)
            self.make().propose(tree, "n1", tree.config.space)
            assert to_json(tree) == before, f"{where}: propose changed the tree"

    def test_proposals_survive_the_journal(self) -> None:
        for where, _, node in self._proposed():
            assert survives_json(node.proposal), f"{where}: not the same after JSON: {node.proposal}"

    def test_a_running_sibling_counts_as_tried(self) -> None:
        for name, config in CONFIGS.items():
            proposer = self.make()
            tree = self._walk(proposer, config, SHAPES["a chain"], 1)
            for _ in range(2):
                tree = _begin(tree, "n1", proposer.propose(tree, "n1", config.space))
            first, second = (tree.nodes[child] for child in tree.nodes["n1"].children)
            assert phase_diff(first, second), f"{name}: the phase that runs already was proposed once more"

    def test_a_phase_without_metrics_can_be_followed(self) -> None:
        """An external trainer may report nothing but scores."""
        for name, config in CONFIGS.items():
            tree = _begin(_begun(config), ROOT, self.make().propose(_begun(config), ROOT, config.space))
            bare = PhaseResult(status=Status.FINISHED, steps_done=10, score=0.4)
            tree = apply(tree, PhaseFinished(node="n1", result=bare))
            proposal = self.make().propose(tree, "n1", config.space)
            assert proposal.diagnosis.strip(), f"{name}: no diagnosis"

    def _trees(self) -> Iterator[tuple[str, Tree]]:
        for name, config in CONFIGS.items():
            for shape, parents in SHAPES.items():
                yield f"{name} space, {shape}", self._walk(self.make(), config, parents, type(self).count)

    def _proposed(self) -> Iterator[tuple[str, Tree, Node]]:
        for where, tree in self._trees():
            yield from ((f"{where}, {n.id}", tree, n) for n in tree.nodes.values() if n.id != ROOT)

    def _walk(self, proposer: Proposer, config: RunConfig, parents: Callable[[int], NodeId], count: int) -> Tree:
        tree = _begun(replace(config, agent=proposer.name))
        for number in range(count):
            parent = parents(number)
            tree = _begin(tree, parent, proposer.propose(tree, parent, config.space))
            node = f"n{number + 1}"
            result = _result(number + 1, tree.nodes[node].phase.steps)
            tree = apply(tree, PhaseFinished(node=node, result=result))
        return tree


def _begun(config: RunConfig) -> Tree:
    tree = fold([RunStarted(run="contract", config=config)])
    tree = apply(tree, PhaseProposed(phase=base_phase(tree), selection=BASE_SELECTION, proposal=BASE_PROPOSAL))
    return apply(tree, PhaseFinished(node=ROOT, result=PhaseResult(status=Status.FINISHED, score=0.4, score_se=0.02)))


def _begin(tree: Tree, parent: NodeId, proposal: Proposal) -> Tree:
    """The tree with the proposed phase running."""
    selection = Selection(parent=parent, kind="uct", reason="contract")
    phase, proposal = next_phase(tree, selection, proposal)
    return apply(tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))


def _result(number: int, steps: int) -> PhaseResult:
    """Every fourth phase fails; the rest gain, stall and lose in turn."""
    rows = [
        MetricRow(kind="train", step=s, values={"reward": 0.4 + 0.002 * s, "entropy": 0.5, "kl": 0.001 * s})
        for s in range(1, steps + 1)
    ]
    status = Status.FAILED if number % 4 == 0 else Status.FINISHED
    score = None if status is Status.FAILED else 0.4 + 0.1 * (number % 3)
    return PhaseResult(status=status, steps_done=steps, score=score, score_se=0.02, summaries=summarise(rows))
