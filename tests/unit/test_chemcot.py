"""The ChemCoT task: its reward withstands every shortcut, its miniature is sound, its splits share no scaffold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import SPLITS, Example, Transcript
from llmzero.ports import Task
from llmzero.tasks.base import MAX_ANSWER_CHARS, check, check_task, json_answers, single, visible
from llmzero.tasks.chemcot import chem, chemcot, mini, prompts

TASK = chemcot()
EDIT = Example("e", "add", {"kind": "edit", "key": "output", "source": "Cc1ccccc1", "added": "hydroxyl", "removed": ""})
ROWS = check_task(TASK)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.split}-{row.policy}")
def test_every_policy_keeps_its_bound(row):
    assert row.ok, f"{row.policy} earns {row.mean_reward:.3f} on {row.n} items; bound {row.bound:.3f}"


def test_every_kind_of_policy_is_checked():
    assert {row.kind for row in ROWS} == {"oracle", "noop", "unsolved", "shortcut"}


def test_the_official_checks_let_shortcuts_through_that_the_reward_stops():
    row = next(row for row in ROWS if row.policy == "group alone" and row.split == "test")
    assert row.official is not None and row.official > 0.2 and row.mean_reward == 0.0


def test_a_broken_reward_fails_the_check():
    policy = next(policy for policy in TASK.policies() if policy.kind == "oracle")
    generous = type(
        "Generous", (), {"examples": TASK.examples, "reward": lambda *_: TASK.reward(EDIT, Transcript.of(""))}
    )
    assert not check(generous(), [policy], "validation", limit=5)[0].ok


def test_it_is_a_task():
    assert isinstance(TASK, Task) and TASK.name == "chemcot"


def test_sizes_and_mix_are_fixed():
    facts = TASK.describe()
    assert facts["sizes"] == {"train": 3000, "validation": 160, "test": 240}
    assert set(facts["mix"]["test"]) == set(mini.MIX)
    json.dumps(facts)


def test_splits_share_no_scaffold_and_no_question():
    scaffolds = {s: {chem.scaffold(chem.source_mol(str(e.fields["source"]))) for e in TASK.examples(s)} for s in SPLITS}
    questions = {s: {TASK.prompt(e)[0]["content"] for e in TASK.examples(s)} for s in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not scaffolds[one] & scaffolds[other]
        assert not questions[one] & questions[other]
    assert all(len(questions[s]) == len(TASK.examples(s)) for s in SPLITS)


def test_the_same_seed_gives_the_same_items_and_another_only_other_training_items():
    mini.build.cache_clear()
    again, other = chemcot(sizes={"train": 60}), chemcot(seed=1, sizes={"train": 60})
    first = again.examples("train")
    mini.build.cache_clear()
    assert again.examples("train") == first != other.examples("train")
    assert again.examples("test") == TASK.examples("test") == other.examples("test")


def test_prompts_hold_no_answer_key():
    for example in TASK.examples("validation"):
        if example.fields["kind"] == "edit":
            assert str(example.fields["gold"]) not in TASK.prompt(example)[0]["content"].split()


@pytest.mark.parametrize(
    ("smiles", "value", "reason"),
    [
        ("Oc1ccccc1C", 1.0, "right edit"),
        ("OCc1ccccc1", 1.0, "right edit"),
        ("Cc1ccccc1", 0.0, "same molecule as the source"),
        ("c1ccccc1C", 0.0, "same molecule as the source"),
        ("Cc1ccccc1.O", 0.0, "more fragments than the source"),
        ("OCCc1ccccc1", 0.0, "the rest of the molecule changed"),
        ("OCc1ccccc1O", 0.0, "wrong change in group counts"),
        ("OCCCCCc1ccccc1", 0.0, "grew by more than the group"),
        ("O[CH]c1ccccc1", 0.0, "new radical"),
        ("*Cc1ccccc1O", 0.0, "not a valid SMILES"),
        ("c1ccc", 0.0, "not a valid SMILES"),
    ],
)
def test_edits_are_judged_gate_by_gate(smiles, value, reason):
    example = Example("e", "add", {**EDIT.fields, "strict": True})
    got = TASK.reward(example, Transcript.of(prompts.answer(smiles)))
    assert (got.value, got.reason) == (value, reason)


def test_an_acid_is_no_alcohol():
    example = Example("e", "add", {**EDIT.fields, "source": "CC=O", "strict": True})
    assert TASK.reward(example, Transcript.of(prompts.answer("CC(=O)O"))).value == 0.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"output": "C"}', "C"),
        ('so ```json\n{"output": "C"}\n``` done', "C"),
        ('{"output": "C"} {"output": "C"}', "C"),
        ('<think>{"output": "N"}</think>{"output": "C"}', "C"),
        ('{"output": "N"}</think>{"output": "C"}', "C"),
        ('{"output": 3}', "3"),
        ('{"output": "N"} {"output": "C"}', None),
        ('{"output": "N", "output": "C"}', None),
        ('{"outer": {"output": "C"}}', None),
        ('[["output", "C"]]', None),
        ('{"output": true}', None),
        ('{"output": "C"}' + " " * MAX_ANSWER_CHARS, None),
        ("{" * 5000, None),
        ('{"a":' * 1500, None),
        ('{"a":[' * 1300 + '{"output": "C"}', None),
        ("", None),
    ],
)
def test_answers_are_read_by_one_rule(text, found):
    assert single(json_answers(text, "output")) == found


@pytest.mark.parametrize("odd", [None, 3, ["x"], b"x"])
def test_text_that_is_no_text_is_empty(odd):
    assert visible(odd) == "" and json_answers(odd, "output") == []


ODD = st.one_of(
    st.text(max_size=300),
    st.text(alphabet='CNO()[]=#123+-cn.*@/\\%{}":<think>/ ', max_size=120),
    st.builds(lambda key, value: json.dumps({key: value}), st.sampled_from(list(prompts.ANSWER_FORMS)), st.text()),
    st.builds(lambda body: f'{{"output": "{body}"}}', st.text(alphabet="CNOcno()[]=#123+-.*@", max_size=60)),
)


@settings(max_examples=150, deadline=None)
@given(text=ODD, index=st.integers(0, 159))
def test_no_answer_makes_the_reward_raise_or_leave_its_range(text, index):
    reward = TASK.reward(TASK.examples("validation")[index], Transcript.of(text))
    assert 0.0 <= reward.value <= 1.0 and reward.reason


def test_rewards_are_fast():
    import time

    items = TASK.examples("validation")[:64]
    answers = [Transcript.of(prompts.answer(e.fields["gold"], str(e.fields["key"]))) for e in items]
    started = time.process_time()
    assert all(TASK.reward(item, answer).value == 1.0 for item, answer in zip(items, answers, strict=True))
    assert time.process_time() - started < 0.5
    # Measured 0.02 s on one core; the bound is loose so that a busy machine does not fail the build.


def test_impossible_knobs_are_refused_in_one_line():
    with pytest.raises(RuntimeError, match="the miniature's knobs leave only"):
        mini.build("test", 50, 0, mini.Difficulty(max_chars=6))


def test_unknown_data_is_refused():
    with pytest.raises(UsageError, match="valid: hub, mini"):
        chemcot(data="real")  # type: ignore[arg-type]
