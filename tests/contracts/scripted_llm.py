"""A language model for the suites: fast, offline, and the same answer to the same question, good ones and bad ones."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable
from typing import Any, NoReturn

from llmzero.agents.cards import load_cards
from llmzero.agents.llm.prompt import Briefing
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import Tree
from llmzero.domain.llm import Reply, Request, Text
from llmzero.domain.types import HyperParams, NodeId

LOST = Reply(error="HTTP 503: busy")


@functools.cache
def briefing() -> Briefing:
    return Briefing(config=RunConfig(), cards=load_cards(None), task="a task")


def no_extra(hyper: HyperParams) -> NoReturn:
    raise UsageError("no further fields")


def drawn_once(draw: Callable[..., bytes]) -> Callable[..., bytes]:
    """One real picture for each node's id, whatever the tree: what pictures show is tested elsewhere."""
    known: dict[str, bytes] = {}

    def remembered(tree: Tree, node: NodeId, *rest: Any) -> bytes:
        if node not in known:
            known[node] = draw(tree, node, *rest)
        return known[node]

    return remembered


class Scripted:
    """`ports.LLM`: some questions are lost, some answered in prose (once or for ever), some with wild values."""

    def complete(self, request: Request) -> Reply:
        kind = random.Random(question(request)).choices(("lost", "mute", "prose", "wild", "sound"), (3, 3, 3, 3, 8))[0]
        if kind == "lost":
            return LOST
        if kind == "mute" or (kind == "prose" and request.purpose != "repair"):
            return Reply(text="It looks\nfine to me.")
        rng = random.Random(request.digest)
        said = verdict(question(request)) if request.name == "verdict" else proposal(rng, wild=kind == "wild")
        return Reply(text=json.dumps(said), model="scripted")


def question(request: Request) -> str:
    """The text of the first question of a conversation."""
    return "\n".join(part.text for part in request.messages[1].parts if isinstance(part, Text))


def proposal(rng: random.Random, *, wild: bool = False) -> dict[str, Any]:
    """A learning rate (a thousandfold where it is wild) and a loss that any space has."""
    changes = [
        {
            "parameter": "learning_rate",
            "value": 10 ** rng.uniform(-5, -4) * (1000 if wild else 1),
            "reason": "why\nnot",
        },
        {"parameter": "loss_type", "value": rng.choice(("grpo", "dapo")), "reason": "the loss"},
    ]
    return {
        "pathology": "slow\nprogress",
        "diagnosis": "The reward rises slowly.",
        "evidence": ["reward 0.3 -> 0.4"],
        "changes": changes,
        "rationale": "A larger step.",
        "steps": None,
        "kl_anchor": None,
        "expected_effect": "a faster rise",
        "confidence": 7.0 if wild else 0.6,
    }


def verdict(asked: str) -> dict[str, str]:
    """Stop where the last row of the table is far below the best strategy, or no number."""
    running, best = re.findall(r"^\| \d+ \| \d+ \| (\S+) .*\| (\S+) (?:± \S+ )?\|$", asked, re.MULTILINE)[-1]
    level = float(best) if best != "unknown" else 0.0
    stop = not float(running) > level - 0.15
    return {"action": "stop" if stop else "continue", "reason": f"{running} against\n{best}"}
