"""Each pathology: the signs that trigger it, the direction of the answer, and what must hold for any parent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_trees import (
    NANO,
    child,
    config_of,
    curve,
    finish,
    grown,
    metric,
    outcome,
    propose,
    root_tree,
    sound,
)

from llmzero.agents.evidence import evidence_of
from llmzero.agents.moves import changes_something
from llmzero.agents.moves import settings as settings_of
from llmzero.agents.playbook import PlaybookProposer
from llmzero.agents.rules import RULES, diagnose
from llmzero.domain.events import Tree
from llmzero.domain.series import METRICS
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import ROOT, FailureKind, MetricSummary, PhaseResult, Proposal, Scalar, Status
from llmzero.profiles import nano_space

FLAT = {"reward": metric(0.5, 0.5)}
STUCK = {**FLAT, "entropy": metric(0.5, 0.5), "kl": metric(0.0, 0.001)}

# name, result, hyperparameters of the parent, expected directions (field: +1 up, -1 down, or the value itself)
CASES: list[tuple[str, PhaseResult, dict[str, object], dict[str, object]]] = [
    ("collapse", outcome(0.2), {}, {"learning_rate": -1, "kl_coef": +1}),
    (
        "kl_spike",
        outcome(0.41, summaries={**sound(), **FLAT, "kl": metric(0.01, 0.41, spikes=4, high=2.0)}),
        {},
        {"learning_rate": -1, "kl_coef": +1, "max_grad_norm": -1},
    ),
    (
        "gradient_spikes",
        outcome(summaries={**sound(), "grad_norm": metric(0.5, 0.5, spikes=6, high=20.0)}),
        {},
        {"max_grad_norm": -1, "learning_rate": -1, "prompts_per_step": +1},
    ),
    (
        "entropy_explosion",
        outcome(0.41, summaries={**sound(), **FLAT, "entropy": metric(0.5, 1.4)}),
        {"entropy_coef": 0.01},
        {"entropy_coef": -1, "temperature": -1, "kl_coef": +1},
    ),
    (
        "length_collapse",
        outcome(0.41, summaries={**sound(), "mean_length_tokens": metric(20.0, 6.0)}),
        {},
        {"loss_type": "dr_grpo", "kl_coef": +1, "learning_rate": -1},
    ),
    (
        "truncation",
        outcome(summaries={**sound(), "truncated_share": metric(0.5, 0.4)}),
        {},
        {"max_completion_tokens": +1, "temperature": -1},
    ),
    (
        "entropy_collapse",
        outcome(0.41, summaries={**sound(), "entropy": metric(0.5, 0.1)}),
        {"updates_per_batch": 2},
        {"temperature": +1, "clip_high": +1, "group_size": +1, "learning_rate": -1},
    ),
    (
        "clip_saturation",
        outcome(summaries={**sound(), "clip_ratio": metric(0.1, 0.3)}),
        {"updates_per_batch": 4},
        {"updates_per_batch": -1, "learning_rate": -1},
    ),
    (
        "overfitting",
        outcome(points=curve(0.5, 0.62, 0.6, 0.55, 0.5, 0.45)),
        {},
        {"learning_rate": -1, "kl_coef": +1, "prompts_per_step": +1},
    ),
    (
        "train_val_gap",
        outcome(0.405),
        {},
        {"kl_coef": +1, "learning_rate": -1, "prompts_per_step": +1},
    ),
    (
        "zero_advantage_hard",
        outcome(summaries={**sound(), "zero_std_share": metric(0.8, 0.8), "reward": metric(0.05, 0.09)}),
        {},
        {"group_size": +1, "temperature": +1, "kl_coef": -1},
    ),
    (
        "zero_advantage_easy",
        outcome(summaries={**sound(), "zero_std_share": metric(0.6, 0.8), "reward": metric(0.85, 0.95)}),
        {},
        {"prompts_per_step": +1, "temperature": +1, "group_size": +1},
    ),
    (
        "over_regularised",
        outcome(0.405, summaries={**sound(), **STUCK}),
        {"kl_coef": 0.15},
        {"kl_coef": -1, "learning_rate": +1, "group_size": +1},
    ),
    ("too_timid", outcome(0.405, summaries={**sound(), **STUCK}), {}, {"learning_rate": +1, "kl_coef": -1}),
    (
        "under_exploration",
        outcome(0.405, summaries={**sound(), **FLAT, "zero_std_share": metric(0.4, 0.4)}),
        {"temperature": 0.6, "top_p": 0.9},
        {"temperature": +1, "top_p": 1.0, "group_size": +1},
    ),
    (
        "reward_plateau",
        outcome(0.405, summaries={**sound(), **FLAT}),
        {},
        {"group_size": +1, "kl_coef": -1},
    ),
    (
        "slow_progress",
        outcome(0.405, summaries={**sound(), "reward": metric(0.5, 0.56)}),
        {},
        {"learning_rate": +1, "group_size": +1, "kl_coef": -1},
    ),
    ("unmeasured", outcome(None, summaries={}), {}, {"group_size": +1, "prompts_per_step": +1}),
    ("healthy", outcome(0.55), {}, {"learning_rate": +1, "group_size": +1, "prompts_per_step": +1, "kl_coef": -1}),
]


# Weaker readings of the same numbers, which come after the case's own pathology.
COMPANIONS = {
    "collapse": ["train_val_gap"],
    "kl_spike": ["reward_plateau"],
    "entropy_explosion": ["reward_plateau"],
    "length_collapse": ["train_val_gap"],
    "entropy_collapse": ["train_val_gap"],
    "over_regularised": ["too_timid", "reward_plateau"],
    "too_timid": ["reward_plateau"],
    "under_exploration": ["reward_plateau"],
}


def follows(old: Scalar, new: Scalar, wanted: object) -> bool:
    if isinstance(wanted, int) and not isinstance(wanted, bool) and abs(wanted) == 1 and not isinstance(new, str):
        return (float(new or 0) - float(old or 0)) * wanted > 0
    return new == wanted


def next_of(tree: Tree, parent: str, space: SearchSpace, seed: int = 3) -> Proposal:
    return PlaybookProposer(seed).propose(tree, parent, space)


def assert_inside(proposal: Proposal, space: SearchSpace) -> None:
    values = {c.field: c.value for c in proposal.changes}
    assert len(values) == len(proposal.changes)
    assert space.clamp(values) == (values, ())
    assert all(c.reason for c in proposal.changes)


@pytest.mark.parametrize("scale", ["nano", "llm"])
@pytest.mark.parametrize(("name", "result", "values", "wanted"), CASES, ids=[c[0] for c in CASES])
def test_signs_are_recognised_and_answered_in_a_fitting_direction(
    name: str, result: PhaseResult, values: dict[str, object], wanted: dict[str, object], scale: str
) -> None:
    tree, space = grown(result, scale=scale, **values)
    proposal = next_of(tree, "n1", space)
    assert proposal.pathology == name
    assert proposal.evidence and any(ch.isdigit() for line in proposal.evidence for ch in line)
    assert len(proposal.changes) >= 3
    assert_inside(proposal, space)
    old, new = tree.nodes["n1"].phase.hyper.flat(), {c.field: c.value for c in proposal.changes}
    for field, direction in wanted.items():
        assert field in new, f"{field} unchanged"
        assert follows(old[field], new[field], direction), (field, old[field], new[field])


@pytest.mark.parametrize(("name", "result", "values", "wanted"), CASES, ids=[c[0] for c in CASES])
def test_nothing_more_severe_is_seen(
    name: str, result: PhaseResult, values: dict[str, object], wanted: dict[str, object]
) -> None:
    tree, space = grown(result, **values)
    found = [rule.name for rule, _ in diagnose(evidence_of(tree, "n1", space))]
    assert found == [name, *COMPANIONS.get(name, [])]


def test_every_rule_has_a_case() -> None:
    assert [rule.name for rule in RULES] == [case[0] for case in CASES]


def test_a_healthy_run_near_the_top_changes_little_and_says_so() -> None:
    tree, space = grown(outcome(0.85, summaries={**sound(), "reward": metric(0.7, 0.88)}))
    proposal = next_of(tree, "n1", space)
    old = tree.nodes["n1"].phase.hyper.flat()
    for change in proposal.changes:
        before = old[change.field]
        assert isinstance(change.value, int | float) and isinstance(before, int | float)
        assert 0.5 <= change.value / before <= 1.5
    assert "small moves only" in proposal.rationale
    assert proposal.kl_anchor is None and proposal.steps is None


@pytest.mark.parametrize("scale", ["nano", "llm"])
@pytest.mark.parametrize(("name", "result", "values", "wanted"), CASES, ids=[c[0] for c in CASES])
def test_twelve_children_are_twelve_phases(
    name: str, result: PhaseResult, values: dict[str, object], wanted: dict[str, object], scale: str
) -> None:
    tree, space = grown(result, scale=scale, **values)
    for number in range(12):
        proposal = next_of(tree, "n1", space)
        assert proposal.changes
        assert_inside(proposal, space)
        tree = finish(propose(tree, "n1", proposal), outcome(0.5 + 0.01 * (number % 3)))
    phases = [(n.phase.hyper, n.phase.steps, n.phase.kl_anchor) for n in tree.nodes.values() if n.parent == "n1"]
    assert all(a != b for i, a in enumerate(phases) for b in phases[:i])
    assert all(p[0] != tree.nodes["n1"].phase.hyper for p in phases)


def test_running_siblings_count_as_tried() -> None:
    tree, space = grown(outcome(0.55))
    first = next_of(tree, "n1", space)
    tree = propose(tree, "n1", first)
    second = next_of(tree, "n1", space)
    ev = evidence_of(tree, "n1", space)
    assert settings_of(ev, first) != settings_of(ev, second)


def test_what_failed_for_a_sibling_is_not_tried_in_a_bolder_form() -> None:
    tree, space = grown(outcome(0.405, summaries={**sound(), **STUCK}))
    faster = next_of(tree, "n1", space)
    good = next_of(finish(propose(tree, "n1", faster), outcome(0.6)), "n1", space)
    bad_tree = finish(propose(tree, "n1", faster), outcome(0.1))
    bad = next_of(bad_tree, "n1", space)
    assert good != bad
    assert any("score -0.305" in line for line in bad.evidence)


def test_a_remedy_that_did_not_help_is_not_repeated() -> None:
    result = outcome(0.405, summaries={**sound(), **FLAT})
    tree, space = grown(result)
    usual = next_of(tree, "n1", space)
    again = next_of(child(tree, "n1", NANO, result, pathology="reward_plateau"), "n2", space)
    assert usual.pathology == again.pathology == "reward_plateau"
    assert usual.rationale != again.rationale


def test_dead_groups_are_read_under_batch_scaling_too() -> None:
    """The trainer counts dead groups itself, so the share means the same under every normalisation."""
    summaries = {**sound(), "zero_std_share": metric(1.0, 1.0)}
    tree, space = grown(outcome(summaries=summaries), advantage_norm="batch")
    proposal = next_of(tree, "n1", space)
    assert proposal.pathology.startswith("zero_advantage")


def test_clip_numbers_are_ignored_at_one_update_and_never_proposed() -> None:
    tree, space = grown(outcome(summaries={**sound(), "clip_ratio": metric(0.5, 0.5)}))
    proposal = next_of(tree, "n1", space)
    assert proposal.pathology == "healthy"
    collapsed, _ = grown(outcome(0.41, summaries={**sound(), "entropy": metric(0.5, 0.1)}))
    assert not {"clip_low", "clip_high"} & {c.field for c in next_of(collapsed, "n1", space).changes}


def test_missing_metrics_are_named_with_their_reason() -> None:
    tree, space = grown(outcome(missing={"kl": "the trainer reports none"}))
    assert "not read: kl (the trainer reports none)" in next_of(tree, "n1", space).evidence


def test_values_at_their_bounds_give_way_to_others() -> None:
    tree, space = grown(outcome(0.55), group_size=16, kl_coef=0.0, learning_rate=1e-5)
    proposal = next_of(tree, "n1", space)
    assert proposal.changes
    assert_inside(proposal, space)


def test_clamped_values_are_noted() -> None:
    tree, space = grown(outcome(0.405, summaries={**sound(), **STUCK}), learning_rate=9e-4)
    proposal = next_of(tree, "n1", space)
    assert {c.field: c.value for c in proposal.changes}["learning_rate"] == 1e-3
    assert any("learning_rate" in note and "clamped" in note for note in proposal.notes)


def test_a_finished_path_without_a_kl_term_is_not_called_timid() -> None:
    still = {**sound(), "reward": metric(0.85, 0.86), "entropy": metric(0.3, 0.3)}
    still.pop("kl")
    tree, space = grown(outcome(0.85), kl_coef=0.0)
    tree = child(tree, "n1", replace(NANO, kl_coef=0.0), outcome(0.855, summaries=still))
    assert next_of(tree, "n2", space).pathology == "reward_plateau"


def test_a_creeping_reward_at_a_tiny_kl_is_called_timid() -> None:
    creeping = {**sound(), "reward": metric(0.4, 0.46), "entropy": metric(0.5, 0.49), "kl": metric(0.0, 0.001)}
    tree, space = grown(outcome(0.46, summaries=creeping))
    assert next_of(tree, "n1", space).pathology == "too_timid"


def test_a_healthy_run_with_much_left_to_win_presses_first_then_turns_careful() -> None:
    """With the batch at its bound a step larger by less than two is the first bet, and the only one of its kind."""
    tree, space = grown(outcome(0.55), group_size=16, prompts_per_step=12, kl_coef=0.0)
    rates = []
    for _ in range(4):
        proposal = next_of(tree, "n1", space)
        changed = [c.value for c in proposal.changes if c.field == "learning_rate"]
        rates += [float(rate or 0) / NANO.learning_rate for rate in changed]
        tree = finish(propose(tree, "n1", proposal), outcome(0.55))
    assert 1 < rates[0] < 2
    assert all(rate < 1 for rate in rates[1:])


def test_the_first_opening_is_the_configured_one() -> None:
    proposal = next_of(root_tree(), ROOT, nano_space())
    assert proposal.changes == () and proposal.pathology == "opening"


def opening_values(result: PhaseResult) -> tuple[dict[str, Scalar], dict[str, Scalar]]:
    tree, space = grown(result)
    proposal = next_of(tree, ROOT, space)
    return NANO.flat(), {**NANO.flat(), **{c.field: c.value for c in proposal.changes}}


def test_after_a_collapsed_opening_the_next_is_slower_and_better_anchored() -> None:
    broken = outcome(None, summaries={}, status=Status.FAILED, failure=FailureKind.NAN)
    for result in (outcome(0.1), outcome(0.1, status=Status.STOPPED), broken):
        old, new = opening_values(result)
        assert new["learning_rate"] < old["learning_rate"]  # type: ignore[operator]
        assert new["kl_coef"] > old["kl_coef"]  # type: ignore[operator]


def test_after_a_timid_opening_the_next_is_faster() -> None:
    old, new = opening_values(outcome(0.405, summaries={**sound(), **STUCK}))
    assert new["learning_rate"] > 2 * old["learning_rate"]  # type: ignore[operator]


def test_after_a_good_opening_the_next_is_a_bold_variation() -> None:
    old, new = opening_values(outcome(0.6))
    assert sum(old[name] != new[name] for name in old) >= 3
    assert new["group_size"] == 16 and new["prompts_per_step"] == 12


def test_out_of_memory_makes_every_later_phase_smaller() -> None:
    tree, space = grown(outcome(None, summaries={}, status=Status.FAILED, failure=FailureKind.OUT_OF_MEMORY))
    limit = NANO.group_size * NANO.prompts_per_step * NANO.max_completion_tokens
    for _ in range(4):
        proposal = next_of(tree, ROOT, space)
        hyper = settings_of(evidence_of(tree, ROOT, space), proposal)[0]
        assert hyper.group_size * hyper.prompts_per_step * hyper.max_completion_tokens < limit
        tree = finish(propose(tree, ROOT, proposal), outcome(0.5))


def test_a_deep_best_strategy_is_tried_as_an_opening() -> None:
    tree, space = grown(outcome(0.55))
    deep = replace(NANO, learning_rate=6e-5, group_size=12)
    tree = child(tree, "n1", deep, outcome(0.7))
    first = next_of(tree, ROOT, space)
    second = next_of(propose(tree, ROOT, first), ROOT, space)
    assert {c.field: c.value for c in second.changes} == {"learning_rate": 6e-5, "group_size": 12}


def test_twelve_openings_are_twelve_phases() -> None:
    tree, space = root_tree(), nano_space()
    for number in range(12):
        proposal = next_of(tree, ROOT, space)
        assert_inside(proposal, space)
        tree = finish(propose(tree, ROOT, proposal), outcome(0.45 + 0.01 * (number % 4)))
    phases = [(n.phase.hyper, n.phase.steps) for n in tree.nodes.values() if n.parent == ROOT]
    assert all(a != b for i, a in enumerate(phases) for b in phases[:i])


def test_a_space_of_one_choice_still_gives_new_phases() -> None:
    narrow = SearchSpace((nano_space()["mask_truncated"],))
    tree = child(root_tree(config_of(space=narrow)), ROOT, NANO, outcome(0.55))
    for _ in range(4):
        tree = finish(propose(tree, "n1", next_of(tree, "n1", narrow)), outcome(0.5))
    phases = [(n.phase.hyper, n.phase.steps) for n in tree.nodes.values() if n.parent == "n1"]
    assert all(a != b for i, a in enumerate(phases) for b in phases[:i])


def test_the_seed_matters_only_where_the_playbook_is_used_up() -> None:
    tree, space = grown(outcome(0.55))
    assert next_of(tree, "n1", space, seed=1) == next_of(tree, "n1", space, seed=2)
    while next_of(tree, "n1", space).pathology != "exhausted":
        tree = finish(propose(tree, "n1", next_of(tree, "n1", space)), outcome(0.5))
    assert next_of(tree, "n1", space, seed=1) != next_of(tree, "n1", space, seed=2)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-2, 2)


def summaries() -> st.SearchStrategy[dict[str, MetricSummary]]:
    one = st.builds(
        MetricSummary,
        first=NUMBERS,
        last=NUMBERS,
        mean=NUMBERS,
        low=NUMBERS,
        high=NUMBERS,
        slope=NUMBERS,
        window_mean=NUMBERS,
        spikes=st.integers(0, 60),
        count=st.integers(0, 500),
    )
    return st.dictionaries(st.sampled_from(sorted(METRICS)), one)


@settings(max_examples=150, deadline=None)
@given(
    found=summaries(),
    score=st.none() | st.floats(0, 1),
    scores=st.lists(st.floats(0, 1), max_size=6),
    scale=st.sampled_from(["nano", "llm"]),
    updates=st.integers(1, 4),
    missing=st.dictionaries(st.sampled_from(sorted(METRICS)), st.text(max_size=8)),
)
def test_any_parent_gets_a_valid_proposal_and_always_the_same(
    found: dict[str, MetricSummary],
    score: float | None,
    scores: list[float],
    scale: str,
    updates: int,
    missing: dict[str, str],
) -> None:
    result = outcome(score, summaries=found, points=curve(*scores), missing=missing)
    tree, space = grown(result, scale=scale, updates_per_batch=updates)
    for parent in ("n1", ROOT):
        proposal = next_of(tree, parent, space)
        assert proposal.changes or (parent == ROOT and updates > 1)  # the configured opening, not yet tried
        assert_inside(proposal, space)
        assert proposal == next_of(tree, parent, space)


def test_the_page_lists_every_rule_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "design" / "playbook.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    told = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    assert [(t[0], t[1], t[2]) for t in told] == [(f"`{r.name}`", r.basis, r.source) for r in RULES]
    assert all(len(t) == 5 and t[3] and t[4] for t in told)


def test_an_answer_says_what_it_rests_on() -> None:
    tree, space = grown(outcome(summaries={**sound(), "truncated_share": metric(0.4, 0.4)}))
    proposal = next_of(tree, "n1", space)
    assert proposal.pathology == "truncation"
    assert proposal.basis.startswith("documented: verl best practices")


def test_entropies_of_other_temperatures_are_not_compared() -> None:
    """A trainer reports the entropy of the tempered distribution: a cooler phase has less and has lost nothing."""
    tree, space = grown(outcome(0.5, summaries={**sound(), "entropy": metric(1.0, 1.0)}), temperature=1.2)
    low = outcome(0.505, summaries={**sound(), **FLAT, "entropy": metric(0.35, 0.34)})
    same = child(tree, "n1", replace(NANO, temperature=1.2), low)
    cooler = child(tree, "n1", replace(NANO, temperature=0.6), low)
    assert next_of(same, "n2", space).pathology == "entropy_collapse"
    assert next_of(cooler, "n2", space).pathology != "entropy_collapse"


def test_without_a_kl_term_another_anchor_is_no_other_phase() -> None:
    tree, space = grown(outcome(0.5), kl_coef=0.0)
    same = Proposal(proposer="test", pathology="test", diagnosis="test", kl_anchor="parent")
    assert not changes_something(evidence_of(tree, "n1", space), same)
    with_kl, space = grown(outcome(0.5), kl_coef=0.02)
    assert changes_something(evidence_of(with_kl, "n1", space), same)
