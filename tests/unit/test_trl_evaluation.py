"""Scoring: seeded, undisturbing, averaged by item."""

from __future__ import annotations

import random

import pytest
from trainer_kit import Letters, tiny_model

from llmzero.domain.examples import Example, Reward, Transcript
from llmzero.trainers.trl import generation
from llmzero.trainers.trl.evaluation import Sampling, measure
from llmzero.trainers.trl.weights import Policy, load_policy

SAMPLING = Sampling(samples=3, temperature=1.0, max_completion_tokens=6, seed=5)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load_policy(tiny_model(tmp_path_factory.mktemp("m") / "model"), cuda=False)


def test_the_seed_decides(policy: Policy) -> None:
    items = Letters().examples("validation")
    first = measure(policy, Letters(), items, SAMPLING)
    assert measure(policy, Letters(), items, SAMPLING) == first
    other = Sampling(samples=3, temperature=1.0, max_completion_tokens=6, seed=6)
    assert measure(policy, Letters(), items, other) != first


def test_random_states_and_mode_are_left_alone(policy: Policy) -> None:
    import torch

    policy.model.train()
    torch.manual_seed(1)
    random.seed(1)
    expected = (torch.rand(1).item(), random.random())
    torch.manual_seed(1)
    random.seed(1)
    measure(policy, Letters(), Letters().examples("validation"), SAMPLING)
    assert (torch.rand(1).item(), random.random()) == expected
    assert policy.model.training


class Numbered(Letters):
    """The reward is the item's own, whatever the answer."""

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        return Reward(float(example.id.endswith(("0", "1", "2"))), "")


def test_scores_are_means_over_items_and_subtasks(policy: Policy) -> None:
    items = Numbered().examples("validation")
    measured = measure(policy, Numbered(), items, SAMPLING)
    assert measured.score == pytest.approx(0.3)
    assert measured.se == pytest.approx((0.21 * 10 / 9 / 10) ** 0.5)
    assert measured.by_subtask == {"kind0": pytest.approx(0.4), "kind1": pytest.approx(0.2)}
    assert measured.items == 10


def test_items_keep_their_answers_over_several_batches(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MAX_SEQUENCES", 9)
    measured = measure(policy, Numbered(), Numbered().examples("validation"), SAMPLING)
    assert measured.by_subtask == {"kind0": pytest.approx(0.4), "kind1": pytest.approx(0.2)}


def test_greedy_takes_one_sample_and_needs_no_seed(policy: Policy) -> None:
    items = Letters().examples("validation")
    one, two = (
        measure(policy, Letters(), items, Sampling(samples=4, temperature=0.0, max_completion_tokens=6, seed=seed))
        for seed in (1, 2)
    )
    assert one == two
    assert one.generated_tokens <= 6 * len(items)


def test_answers_end_at_their_end_token(policy: Policy) -> None:
    assert generation._cut([5, 6, 1, 7, 1], (1,)) == [5, 6, 1]
    assert generation._cut([5, 6], (1,)) == [5, 6]
