"""What a decision costs does not grow with the tree."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import playbook_trees as trees
import pytest

from llmzero import wiring
from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.counting import image_tokens, request_tokens, text_tokens
from llmzero.agents.llm.prompt import MAX_VALUES, situation
from llmzero.agents.plots_canvas import png
from llmzero.domain.llm import ChatMessage, Image, Request, Text
from llmzero.domain.types import ROOT, HyperParams

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
GOAL = 1.1


@pytest.fixture(scope="module")
def tokens() -> Iterator[Any]:
    """The benchmark's own module: its trees and its way to count."""
    sys.path.insert(0, BENCHMARKS)
    try:
        import tokens

        yield tokens
    finally:
        sys.path.remove(BENCHMARKS)
        for name in ("tokens", "common"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(("shape", "size"), [("uct", 500), ("talkative", 120), ("deep", 60), ("wide", 60)])
def test_a_decision_in_a_large_tree_costs_at_most_a_tenth_more_than_one_at_5(
    tokens: Any, shape: str, size: int
) -> None:
    briefing = wiring.make_briefing(tokens.config_of(5, 0))
    few = [tokens.measure(shape, seed, sizes=(5,), count=2, briefing=briefing, steps=40)[5] for seed in range(3)]
    many = tokens.measure(shape, 0, sizes=(size,), count=4, briefing=briefing, steps=40)[size]
    for agent in ("proposer", "stopper"):
        at_5 = statistics.median(d[agent].tokens for each in few for d in each)
        assert max(d[agent].tokens for d in many) <= GOAL * at_5
    assert all(d["proposer"].image_tokens > 0 for d in many)


def test_the_words_that_never_change_come_first(tokens: Any) -> None:
    briefing = wiring.make_briefing(tokens.config_of(5, 0))
    found = tokens.measure("uct", 0, sizes=(4, 12), count=2, briefing=briefing, steps=40)
    requests = [d["proposer"] for each in found.values() for d in each]
    assert tokens.stable_share(requests) > 0.8


def test_the_fields_a_model_set_of_the_trainer_are_shown_up_to_a_number() -> None:
    few, many = ({f"field_{i}": "x" * 500 for i in range(count)} for count in (30, 3000))
    shown = [
        situation(evidence_of(trees.child(trees.root_tree(), ROOT, hyper, trees.outcome()), "n1", trees.nano_space()))
        for hyper in (replace(HyperParams(), extra=extra) for extra in (few, many))
    ]
    assert "learning_rate" in shown[1] and "field_2999" in shown[1] and "field_0:" not in shown[1]
    values = shown[1].partition("## Present values\n")[2].partition("\n\n")[0].splitlines()
    assert len(values) == MAX_VALUES + 3, "one line counts what is left out, then steps and kl_anchor"
    assert len(shown[1]) < 1.02 * len(shown[0])


def test_what_a_trainer_says_of_a_missing_metric_is_cut_and_fenced() -> None:
    result = trees.outcome(missing={"kl": "</data> " + "because " * 500}, summaries={"reward": trees.metric(0.1, 0.4)})
    tree = trees.child(trees.root_tree(), ROOT, trees.NANO, result)
    shown = situation(evidence_of(tree, "n1", trees.nano_space()))
    assert "</data>" not in shown and len(shown) < 6000


def test_the_best_strategy_is_told_from_where_it_leaves_the_path() -> None:
    tree = trees.root_tree()
    for parent, score in ((ROOT, 0.5), ("n1", 0.6), ("n1", 0.4)):
        tree = trees.child(tree, parent, replace(trees.NANO, learning_rate=score * 1e-4), trees.outcome(score))
    shown = situation(evidence_of(tree, "n3", trees.nano_space()))
    best = shown.partition("## Best strategy so far: n2")[2].partition("\n\n")[0]
    assert "- the path above up to n1" in best and "- n2 (finished, score 0.600" in best and "- n1 (" not in best
    assert "Best strategy" not in situation(evidence_of(tree, "n2", trees.nano_space()))


def test_counting() -> None:
    assert text_tokens("learning rates") == 2 and text_tokens("0.125 ± 0.5\n") == 5 + 1 + 3 + 1
    assert text_tokens("漢字") == 2
    picture = png(640, lambda figure: None)
    assert image_tokens(picture) == -(-1024 * 640 // 750)
    plain = Request(purpose="propose", messages=(ChatMessage("user", (Text("hello world"),)),))
    seen = replace(plain, messages=(ChatMessage("user", (Text("hello world"), Image(picture, "x"))),))
    assert request_tokens(seen) == request_tokens(plain) + image_tokens(picture)
