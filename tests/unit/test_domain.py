"""Codec, events, statistics, space, strategy views."""

import dataclasses
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import PhaseError, UsageError, did_you_mean
from llmzero.domain.events import Event, PhaseFinished, apply, event_from_json, event_to_json, fold
from llmzero.domain.seeds import derive_seed
from llmzero.domain.series import MetricRow, summarise
from llmzero.domain.space import Parameter, settle
from llmzero.domain.statistics import clustered_score, count_spikes, slope
from llmzero.domain.strategy import best_node, path_curve, path_to, phase_diff, strategy_of, total_steps, transition
from llmzero.domain.types import HyperParams, PhaseResult, Status
from llmzero.profiles import llm_space, nano_space
from llmzero.testing import base_result, finished_phase, tree_events

CONFIG = RunConfig(space=nano_space(), hyper=HyperParams(learning_rate=1e-4, max_completion_tokens=32), steps=20)


def events() -> list[Event]:
    return tree_events(
        CONFIG,
        [
            ("n0", None, base_result(0.3)),
            ("n1", "n0", finished_phase([0.4, 0.5], node="n1")),
            ("n2", "n1", finished_phase([0.5, 0.6], node="n2")),
            ("n3", "n1", PhaseResult(status=Status.FAILED)),
        ],
        {"n2": {"learning_rate": 5e-5, "group_size": 16}},
    )


def test_events_survive_the_round_trip_through_a_journal_line() -> None:
    for event in events():
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_fold_is_apply_repeated() -> None:
    from llmzero.domain.events import Tree

    tree = Tree()
    for event in events():
        tree = apply(tree, event)
    assert tree == fold(events())


def test_apply_leaves_the_old_tree_alone() -> None:
    before = fold(events()[:-1])
    keep = dict(before.nodes)
    apply(before, events()[-1])
    assert before.nodes == keep


@given(st.integers(0, 8))
def test_any_prefix_of_a_journal_is_a_tree_whose_links_hold(cut: int) -> None:
    tree = fold(events()[:cut])
    for node in tree.nodes.values():
        assert node.parent is None or node.id in tree.nodes[node.parent].children
        assert all(tree.nodes[c].parent == node.id for c in node.children)


def test_a_node_cannot_finish_twice_or_be_proposed_twice() -> None:
    twice = PhaseFinished(node="n1", result=finished_phase([0.1]))
    with pytest.raises(ValueError, match="finished twice"):
        fold([*events(), twice])
    with pytest.raises(ValueError, match="proposed twice"):
        fold([*events(), events()[1]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodez": 3}, "unknown key 'nodez'"),
        ({"nodes": "8"}, "RunConfig.nodes: expected int"),
        ({"nodes": True}, "RunConfig.nodes"),
        ({"kl_anchor": "bas"}, "expected one of"),
        ({"search": {"exploration": []}}, "RunConfig.search.exploration"),
    ],
)
def test_codec_refuses_what_does_not_fit(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_json(RunConfig, {**to_json(RunConfig()), **change})


def test_config_round_trip_and_every_field_is_documented() -> None:
    assert from_json(RunConfig, json.loads(json.dumps(to_json(CONFIG)))) == CONFIG
    for field in dataclasses.fields(RunConfig):
        nested = field.default_factory is not dataclasses.MISSING
        assert nested or field.name == "schema" or field.metadata["doc"]


def test_seeds_depend_on_every_name_and_on_nothing_else() -> None:
    assert derive_seed(0, "n1") == derive_seed(0, "n1")
    assert len({derive_seed(s, n) for s in range(5) for n in ("n1", "n2", "n12")}) == 15
    assert derive_seed(1, "2", "3") == derive_seed(1, "2/3")  # names are joined: callers use plain ids


def test_clustered_error_counts_items_not_samples() -> None:
    score, se = clustered_score([0.0, 1.0, 0.0, 1.0])
    assert score == 0.5
    assert se == pytest.approx(math.sqrt((4 * 0.25 / 3) / 4))
    assert clustered_score([0.7]) == (0.7, 0.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_slope_of_a_line_is_its_slope(values: list[float]) -> None:
    xs = [float(i) for i in range(len(values))]
    assert slope(xs, [3 * x + 1 for x in xs]) == pytest.approx(3)
    assert math.isfinite(slope(xs, values))


def test_spikes_stand_far_above_the_rest() -> None:
    assert count_spikes([1.0, 1.1, 0.9, 1.0, 30.0, 1.0, 1.05]) == 1
    assert count_spikes([1.0, 1.1, 0.9, 1.0, 1.2, 1.0]) == 0


def test_summaries_leave_out_non_finite_values() -> None:
    rows = [MetricRow(kind="train", step=k, values={"reward": v}) for k, v in enumerate([0.1, math.nan, 0.3], 1)]
    summary = summarise(rows)["reward"]
    assert (summary.count, summary.first, summary.last) == (2, 0.1, 0.3)
    assert "kl" not in summarise(rows)


def test_space_clamps_and_says_so() -> None:
    inside, notes = nano_space().clamp({"learning_rate": 1.0, "group_size": 7, "loss_type": "grpo"})
    assert inside == {"learning_rate": 1e-3, "group_size": 8, "loss_type": "grpo"}
    assert len(notes) == 2
    odd = Parameter(name="max_completion_tokens", kind="int", low=8, high=51, multiple_of=4)
    assert [odd.clamp(v) for v in (51, 50, 1)] == [48, 48, 8]
    assert Parameter(name="group_size", kind="int", low=5, high=5, multiple_of=2).clamp(9) == 5
    for bad in ({"learning_rat": 1.0}, {"loss_type": "gpro"}, {"learning_rate": "high"}, {"temperature": math.nan}):
        with pytest.raises(UsageError):
            nano_space().clamp(bad)  # type: ignore[arg-type]


@given(st.integers(1, 5), st.integers(2, 64), st.floats(0.05, 0.4), st.floats(0.05, 0.6))
def test_settled_values_obey_the_cross_rules(updates: int, prompts: int, low: float, high: float) -> None:
    asked = HyperParams(updates_per_batch=updates, prompts_per_step=prompts, clip_low=low, clip_high=high)
    hyper, notes = settle(asked)
    assert hyper.prompts_per_step % hyper.updates_per_batch == 0
    assert hyper.clip_high >= hyper.clip_low
    assert bool(notes) == (hyper != asked)
    assert settle(hyper) == (hyper, ())


def test_published_schedules_fit_the_llm_space() -> None:
    for values in ({"learning_rate": 1e-6, "clip_high": 0.28, "kl_coef": 0.0}, {"group_size": 16, "temperature": 1.5}):
        assert llm_space(65536).clamp({**values, "max_completion_tokens": 32768})[1] == ()  # type: ignore[dict-item]


def test_strategy_views() -> None:
    tree = fold(events())
    assert [n.id for n in path_to(tree, "n2")] == ["n0", "n1", "n2"]
    best = best_node(tree)
    assert best is not None
    assert best.id == "n2"
    assert total_steps(tree, "n2") == 40
    assert [p.step for p in path_curve(tree, "n2")] == [0, 10, 20, 30, 40]
    strategy = strategy_of(tree, "n2")
    assert (strategy.nodes, strategy.total_steps, strategy.score) == (("n1", "n2"), 40, 0.6)
    change = transition(tree, "n2")
    assert change is not None
    assert change.changes == (("learning_rate", 1e-4, 5e-5), ("group_size", 8, 16))
    assert change.score_change == pytest.approx(0.1)
    assert transition(tree, "n0") is None
    assert phase_diff(tree.nodes["n0"], tree.nodes["n1"]) == ()


def test_errors_are_picklable_and_suggest_near_names() -> None:
    error = pickle.loads(pickle.dumps(PhaseError("nan", "loss is nan")))
    assert (error.kind, str(error)) == ("nan", "loss is nan")
    assert did_you_mean("chemcott", ["chemcot", "ssmr"]).startswith("did you mean chemcot?")
