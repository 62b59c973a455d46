"""The rule stopper: when it stops, when it must not, and how often noise alone fools it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_trees import NANO, child, curve, outcome, root_tree

from llmzero.agents.stopping import NeverStop, RuleStopper, interpolate
from llmzero.domain.config import StopConfig
from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.types import ROOT, EvalPoint, Status, Verdict

RULE = RuleStopper(StopConfig())
GOOD = curve(0.45, 0.5, 0.55, 0.58, 0.6, 0.6)
SE_CURVE = 0.045
"""Standard error of an in-phase evaluation: 96 items, two samples each, a score near 0.6."""
SE_SCORE = 0.025
"""Standard error of a node's score: some 200 items, four samples each."""


def race(start: str = ROOT) -> Tree:
    """A base of 0.4, a finished best strategy n1 (0.6 after 60 steps) and a running phase n2 under `start`."""
    tree = child(root_tree(), ROOT, NANO, outcome(0.6, points=GOOD))
    return child(tree, start, NANO, None)


def judge(tree: Tree, points: tuple[EvalPoint, ...], rows: tuple[MetricRow, ...] = ()) -> Verdict:
    return RULE.judge(tree, "n2", points, rows)


def test_a_phase_far_below_the_best_at_equal_steps_is_dominated() -> None:
    verdict = judge(race(), curve(0.4, 0.38, 0.3, 0.25))
    assert (verdict.action, verdict.at_step) == ("stop", 30)
    assert verdict.reason.startswith("dominated: 0.300 at step 30, 0.250 below the best strategy (n1) at total step 30")


def test_a_phase_as_good_as_the_best_goes_on() -> None:
    assert judge(race(), GOOD[:5]).action == "continue"


def test_one_bad_evaluation_is_no_streak() -> None:
    assert judge(race(), curve(0.45, 0.5, 0.2, 0.58, 0.3)).action == "continue"


def test_nothing_is_stopped_before_the_grace_steps() -> None:
    early = judge(race(), curve(0.0, every=10))
    assert early.action == "continue"
    assert judge(race(), curve(0.0, 0.0, every=5)).action == "continue"
    assert judge(race(), curve(0.0, 0.0)).at_step == 20


def test_the_last_evaluation_never_stops_because_it_saves_nothing() -> None:
    assert judge(race(), curve(0.45, 0.5, 0.55, 0.58, 0.2, 0.2)).action == "continue"


def test_a_child_of_the_best_is_compared_with_its_final_score() -> None:
    assert judge(race("n1"), curve(0.6, 0.59, 0.6, 0.58)).action == "continue"
    verdict = judge(race("n1"), curve(0.55, 0.45, 0.4))
    assert (verdict.action, verdict.at_step) == ("stop", 30)
    assert "final score of the best strategy (n1)" in verdict.reason


def test_a_child_of_an_inner_node_is_compared_with_its_sibling_on_the_best_path() -> None:
    tree = child(root_tree(), ROOT, NANO, outcome(0.5, points=curve(0.42, 0.45, 0.48, 0.5, 0.5, 0.5)))
    tree = child(tree, "n1", NANO, outcome(0.8, points=curve(0.6, 0.7, 0.75, 0.78, 0.8, 0.8)))
    tree = child(tree, "n1", NANO, None)
    same = RULE.judge(tree, "n3", curve(0.55, 0.66, 0.72, 0.74), ())
    worse = RULE.judge(tree, "n3", curve(0.5, 0.5, 0.5), ())
    assert same.action == "continue"
    assert (worse.action, worse.at_step) == ("stop", 20)
    assert "(n2) at total step 80" in worse.reason


def test_falling_below_its_own_start_is_a_collapse_even_where_the_best_was_low_then() -> None:
    slow = curve(0.3, 0.3, 0.3, 0.3, 0.3, 0.9)
    tree = child(root_tree(), ROOT, NANO, outcome(0.9, points=slow))
    verdict = RULE.judge(child(tree, ROOT, NANO, None), "n2", curve(0.28, 0.26, 0.24), ())
    assert (verdict.action, verdict.at_step) == ("stop", 20)
    assert verdict.reason.startswith("collapsing: 0.260 at step 20, 0.140 below its own start (n0)")


def test_a_dip_that_recovers_is_no_collapse() -> None:
    slow = curve(0.2, 0.2, 0.2, 0.2, 0.2, 0.9)
    tree = child(child(root_tree(), ROOT, NANO, outcome(0.9, points=slow)), ROOT, NANO, None)
    dip = curve(0.1, 0.26, 0.29, 0.36)
    stopper = RuleStopper(StopConfig(grace_steps=30))
    assert stopper.judge(tree, "n2", dip, ()).action == "continue"


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FAILED])
def test_only_finished_strategies_are_compared_with(status: Status) -> None:
    tree = child(root_tree(), ROOT, NANO, outcome(0.95, points=curve(0.9, 0.9, 0.95), status=status))
    assert judge(child(tree, ROOT, NANO, None), curve(0.42, 0.43, 0.45)).action == "continue"


def test_no_number_is_broken() -> None:
    assert judge(race(), curve(0.45, math.nan)).reason.startswith("broken: validation score is nan")
    rows = tuple(MetricRow(kind="train", step=s, values={"loss": math.nan if s > 15 else 0.0}) for s in range(1, 41))
    assert judge(race(), curve(0.45), rows).action == "continue"
    assert judge(race(), curve(0.45, 0.5, 0.55), rows).at_step == 20


def test_without_any_reference_nothing_is_stopped() -> None:
    base = child(root_tree(score=0.0), ROOT, NANO, None)
    assert RULE.judge(base, "n1", curve(0.0, 0.0, 0.0), ()).action == "continue"


def test_never_stop_never_stops() -> None:
    verdict = NeverStop(StopConfig()).judge(race(), "n2", curve(0.0, 0.0, 0.0), ())
    assert (verdict.action, verdict.at_step) == ("continue", 30)


def test_interpolation_is_linear_in_score_and_standard_error() -> None:
    points = (EvalPoint(10, 0.4, 0.02), EvalPoint(20, 0.6, 0.04), EvalPoint(20, 0.5, 0.01))
    assert interpolate(points, 15) == (pytest.approx(0.5), pytest.approx(0.03))
    assert interpolate(points, 20) == (0.5, 0.01)
    assert interpolate(points, 5) == (0.4, 0.02)
    assert interpolate(points, 99) == (0.5, 0.01)


@settings(max_examples=100, deadline=None)
@given(scores=st.lists(st.floats(0, 1), max_size=6), start=st.sampled_from([ROOT, "n1"]))
def test_later_evaluations_never_change_an_earlier_verdict(scores: list[float], start: str) -> None:
    tree, points = race(start), curve(*scores)
    verdicts = [judge(tree, points[:k]) for k in range(1, len(points) + 1)]
    first = next((v for v in verdicts if v.action == "stop"), None)
    until = verdicts.index(first) if first else len(verdicts)
    assert all(v == first for v in verdicts[until:])
    assert [v.at_step for v in verdicts[:until]] == [p.step for p in points[:until]]


def noisy(rng: random.Random, means: list[float], se: float) -> tuple[EvalPoint, ...]:
    return curve(*(min(1.0, max(0.0, rng.gauss(m, se))) for m in means), se=se)


def stopped_share(means: list[float], *, seed: int, start: str, se: float = SE_CURVE, phases: int = 400) -> float:
    """Share of noisy phases with these true means that are stopped, against the luckiest of three equal strategies."""
    rng = random.Random(seed)
    stops = 0
    for _ in range(phases):
        true = [0.5, 0.55, 0.58, 0.6, 0.6, 0.6]
        tree = root_tree(score=rng.gauss(0.4, SE_SCORE))
        for _ in range(3):
            done = outcome(rng.gauss(0.6, SE_SCORE), points=noisy(rng, true, se), se=SE_SCORE)
            tree = child(tree, ROOT, NANO, done)
        best = max(("n1", "n2", "n3"), key=lambda n: tree.nodes[n].score or 0.0)
        tree = child(tree, ROOT if start == ROOT else best, NANO, None)
        stops += RULE.judge(tree, "n4", noisy(rng, means, se), ()).action == "stop"
    return stops / phases


@pytest.mark.parametrize("se", [0.015, SE_CURVE])
def test_noise_alone_stops_fewer_than_two_phases_in_a_hundred(se: float) -> None:
    opening = stopped_share([0.5, 0.55, 0.58, 0.6, 0.6, 0.6], seed=1, start=ROOT, se=se)
    continued = stopped_share([0.6] * 6, seed=2, start="best", se=se)
    assert opening < 0.02
    assert continued < 0.02


def test_collapsing_phases_are_stopped() -> None:
    assert stopped_share([0.35, 0.2, 0.1, 0.05, 0.02, 0.02], seed=3, start=ROOT) > 0.95
    assert stopped_share([0.5, 0.35, 0.2, 0.1, 0.05, 0.02], seed=4, start="best") > 0.95


def test_a_small_lasting_deficit_is_mostly_left_to_the_search() -> None:
    assert stopped_share([0.52] * 6, seed=5, start="best") < 0.2
