"""The random baseline draws from the whole space, repeats nothing and reads nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from playbook_trees import NANO, child, config_of, finish, grown, outcome, propose, root_tree

from llmzero.agents.samplers import RandomProposer
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import ROOT
from llmzero.profiles import nano_space


def test_draws_change_three_to_five_parameters_inside_the_space() -> None:
    tree, space = grown(outcome())
    for seed in range(60):
        proposal = RandomProposer(seed).propose(tree, "n1", space)
        values = {c.field: c.value for c in proposal.changes}
        assert 3 <= len(values) <= 5
        assert space.clamp(values) == (values, ())
        assert not {"clip_low", "clip_high"} & set(values)


def test_learning_rates_are_spread_evenly_over_the_logarithm() -> None:
    tree, space = grown(outcome())
    drawn = [RandomProposer(seed).propose(tree, "n1", space).changes for seed in range(600)]
    rates = [float(c.value or 0) for changes in drawn for c in changes if c.field == "learning_rate"]
    below = sum(rate < math.sqrt(1e-5 * 1e-3) for rate in rates) / len(rates)
    assert len(rates) > 100
    assert 0.4 < below < 0.6


def test_the_parents_metrics_change_nothing() -> None:
    good, space = grown(outcome(0.6))
    bad, _ = grown(outcome(0.1, summaries={}))
    assert RandomProposer(4).propose(good, "n1", space) == RandomProposer(4).propose(bad, "n1", space)
    assert "reads nothing" in RandomProposer(4).propose(good, "n1", space).diagnosis


def test_seeds_differ_and_repeat() -> None:
    tree, space = grown(outcome())
    assert RandomProposer(1).propose(tree, "n1", space) == RandomProposer(1).propose(tree, "n1", space)
    assert RandomProposer(1).propose(tree, "n1", space) != RandomProposer(2).propose(tree, "n1", space)


def test_openings_vary_around_the_configured_values() -> None:
    proposal = RandomProposer(1).propose(root_tree(), ROOT, nano_space())
    assert 3 <= len(proposal.changes) <= 5


def test_a_tiny_space_is_used_up_and_then_only_the_length_changes() -> None:
    space = SearchSpace((nano_space()["loss_type"],))
    tree = child(root_tree(config_of(space=space)), ROOT, replace(NANO, loss_type="dapo"), outcome())
    for _ in range(6):
        tree = finish(propose(tree, "n1", RandomProposer(1).propose(tree, "n1", space)), outcome())
    phases = [(n.phase.hyper.loss_type, n.phase.steps) for n in tree.nodes.values() if n.parent == "n1"]
    assert len(set(phases)) == 6
    assert {loss for loss, steps in phases if steps == 60} == {"grpo", "dr_grpo", "bnpo"}
