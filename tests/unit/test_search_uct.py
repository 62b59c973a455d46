"""The tree policy against trees computed by hand."""

import math

import pytest

from llmzero.domain.config import RunConfig, SearchConfig
from llmzero.domain.events import Tree, fold
from llmzero.domain.types import FailureKind, PhaseResult, Status
from llmzero.search.fresh import fresh_start_reason
from llmzero.search.uct import allowed_children, select, uct_score
from llmzero.search.value import backup, best_so_far, values, visits
from llmzero.testing import base_result, finished_phase, tree_events


def plain(**search: object) -> RunConfig:
    """A config whose fresh starts are off unless asked for."""
    return RunConfig(search=SearchConfig(**{"fresh_every": 0, "fresh_patience": 0, **search}))  # type: ignore[arg-type]


def grow(config: RunConfig, *nodes: tuple[str, str | None, PhaseResult | None]) -> Tree:
    return fold(tree_events(config, [("n0", None, base_result(0.2)), *nodes]))


def done(score: float) -> PhaseResult:
    return finished_phase([score])


FAILED = PhaseResult(status=Status.FAILED, failure=FailureKind.DIED)
STOPPED = PhaseResult(status=Status.STOPPED, score=0.3, score_se=0.02, steps_done=20)


def test_values_are_scores_between_the_lowest_and_the_highest_finished_one() -> None:
    tree = grow(plain(), ("n1", "n0", done(0.6)), ("n2", "n1", done(0.4)), ("n3", "n1", FAILED), ("n4", "n0", STOPPED))
    assert values(tree) == pytest.approx({"n0": 0.0, "n1": 1.0, "n2": 0.5, "n3": 0.0, "n4": 0.25})


def test_a_stopped_score_outside_the_finished_range_is_clipped() -> None:
    above = PhaseResult(status=Status.STOPPED, score=0.9, score_se=0.02)
    below = PhaseResult(status=Status.STOPPED, score=0.0, score_se=0.02)
    tree = grow(plain(), ("n1", "n0", done(0.6)), ("n2", "n0", above), ("n3", "n0", below))
    assert values(tree)["n2"] == 1.0
    assert values(tree)["n3"] == 0.0


def test_equal_scores_are_worth_one_half() -> None:
    assert values(grow(plain(), ("n1", "n0", done(0.2)))) == {"n0": 0.5, "n1": 0.5}


def test_visits_count_failed_stopped_and_running_nodes() -> None:
    tree = grow(plain(), ("n1", "n0", done(0.6)), ("n2", "n1", FAILED), ("n3", "n1", None), ("n4", "n0", STOPPED))
    assert visits(tree) == {"n0": 5, "n1": 3, "n2": 1, "n3": 1, "n4": 1}


def test_mean_and_max_backup_by_hand() -> None:
    #        n0 .2 -> 0          values: n1 .6 -> 1, n2 .4 -> .5, n3 failed -> 0
    #        n1 (.6)             mean:   n1 = (1 + .5 + 0) / 3 = .5 ; n0 = (0 + 1 + .5 + 0) / 4 = .375
    #      n2(.4)  n3 failed     max:    n1 = 1 ; n0 = 1
    tree = grow(plain(), ("n1", "n0", done(0.6)), ("n2", "n1", done(0.4)), ("n3", "n1", FAILED))
    assert backup(tree, "mean") == pytest.approx({"n0": 0.375, "n1": 0.5, "n2": 0.5, "n3": 0.0})
    assert backup(tree, "max") == pytest.approx({"n0": 1.0, "n1": 1.0, "n2": 0.5, "n3": 0.0})


def test_a_running_node_has_no_value_yet() -> None:
    tree = grow(plain(), ("n1", "n0", done(0.6)), ("n2", "n1", None))
    assert backup(tree, "mean")["n1"] == 1.0
    assert backup(tree, "mean")["n2"] == 0.0


def test_uct_formula() -> None:
    assert uct_score(0.5, 2, 8, SearchConfig(exploration=0.7)) == pytest.approx(0.5 + 0.7 * math.sqrt(math.log(8) / 2))


@pytest.mark.parametrize(("n", "allowed"), [(1, 1), (3, 1), (4, 2), (8, 2), (9, 3), (16, 4)])
def test_widening_allows_the_square_root_of_the_visits(n: int, allowed: int) -> None:
    assert allowed_children(n, SearchConfig()) == allowed


def test_the_first_three_expansions_go_down_and_the_fourth_widens_the_root() -> None:
    config = plain()
    assert select(grow(config)).parent == "n0"
    assert select(grow(config, ("n1", "n0", done(0.5)))).parent == "n1"
    assert select(grow(config, ("n1", "n0", done(0.5)), ("n2", "n1", done(0.6)))).parent == "n2"
    chain = grow(config, ("n1", "n0", done(0.5)), ("n2", "n1", done(0.6)), ("n3", "n2", done(0.7)))
    assert select(chain).parent == "n0"


def test_select_by_hand_prefers_the_better_or_the_less_visited_child() -> None:
    # values between .2 and .7: n1 .6, n2 .8, n3 1 -> Q(n1) = .8 at N=3; n4 .5 at N=1
    nodes = [("n1", "n0", done(0.5)), ("n2", "n1", done(0.6)), ("n3", "n2", done(0.7)), ("n4", "n0", done(0.45))]
    explore = grow(plain(exploration=1.0), *nodes)
    # N(n0)=5: n1: .8 + sqrt(ln5/3)=.8+.732=1.532 ; n4: .5 + sqrt(ln5/1)=.5+1.269=1.769
    assert select(explore).parent == "n4"
    exploit = grow(plain(exploration=0.1), *nodes)
    # n1: .8 + .0732 ; n4: .5 + .1269 -> n1, which has 1 child and N=3 (1 allowed) -> n2 (N=2) -> n3 (N=1)
    assert select(exploit).parent == "n3"
    assert "n0 > n1 > n2 > n3" in select(exploit).reason


def test_failed_stopped_running_and_lost_nodes_are_never_resumed_from() -> None:
    config = plain()
    only_failed = grow(config, ("n1", "n0", FAILED))
    assert select(only_failed).parent == "n0"
    assert "none of its 1 children" in select(only_failed).reason
    assert select(grow(config, ("n1", "n0", STOPPED))).parent == "n0"
    assert select(grow(config, ("n1", "n0", None))).parent == "n0"
    best_failed_below = grow(config, ("n1", "n0", done(0.5)), ("n2", "n1", STOPPED))
    assert select(best_failed_below).parent == "n1"


def test_fresh_start_is_forced_after_so_many_expansions() -> None:
    config = plain(fresh_every=2)
    chain = [("n1", "n0", done(0.5)), ("n2", "n1", done(0.6))]
    assert fresh_start_reason(grow(config, *chain)) == ""
    due = grow(config, *chain, ("n3", "n2", done(0.7)))
    selection = select(due)
    assert (selection.parent, selection.kind) == ("n0", "fresh")
    assert "2 expansions since" in selection.reason
    after = grow(config, *chain, ("n3", "n2", done(0.7)), ("n4", "n0", done(0.4)))
    assert fresh_start_reason(after) == ""


def test_fresh_start_is_forced_on_stagnation() -> None:
    config = plain(fresh_patience=2)
    rising = grow(config, ("n1", "n0", done(0.5)), ("n2", "n1", done(0.6)), ("n3", "n2", done(0.7)))
    assert fresh_start_reason(rising) == ""
    flat = grow(config, ("n1", "n0", done(0.5)), ("n2", "n1", done(0.51)), ("n3", "n2", done(0.505)))
    assert "stagnation" in fresh_start_reason(flat)


def test_a_record_must_exceed_the_last_by_its_error() -> None:
    tree = grow(plain(), ("n1", "n0", done(0.5)), ("n2", "n1", done(0.51)), ("n3", "n2", done(0.53)))
    assert [node for node, _ in best_so_far(tree)] == ["n0", "n1", "n3"]
