"""Scripted users of the skill agent's tools, for its tests and its benchmark: what a model would say, from what it was
told last."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from llm_replies import Completion, tool_calls

Body = dict[str, Any]
Calls = Sequence[tuple[str, dict[str, Any]]]


def told(body: Body) -> str:
    """The words of the last message."""
    return words_of(body["messages"][-1])


def words_of(message: Any) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def called(body: Body, name: str) -> list[dict[str, Any]]:
    """Arguments of every call of a tool so far."""
    made = [call["function"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return [json.loads(each["arguments"]) for each in made if each["name"] == name]


def launch(seed: int, parent: str, **values: Any) -> tuple[str, dict[str, Any]]:
    """A sound launch of four changes that differs with the seed, as long as a model's usual answer."""
    rng = random.Random(seed)
    new = {
        "learning_rate": (round(10 ** rng.uniform(-4.5, -3.7), 7), "the reward's slope is small for its noise"),
        "group_size": (rng.choice([6, 10, 12, 14]), "larger groups give cleaner advantages at this reward"),
        "kl_coef": (round(rng.uniform(0.0, 0.05), 4), "the KL to the anchor grows slower than the reward"),
        "entropy_coef": (round(rng.uniform(0.0, 0.01), 4), "the entropy falls before the reward has settled"),
    }
    return "launch_phase", {
        "parent": parent,
        "pathology": "slow_progress",
        "diagnosis": "The training reward rises slowly while KL and entropy leave room for larger steps.",
        "evidence": ["reward rose from 0.34 to 0.42 over the phase", "KL stayed under 0.02 nats per token"],
        "changes": [{"parameter": n, "value": v, "reason": why} for n, (v, why) in new.items()],
        "rationale": "A larger step carried by larger groups, held by the KL term, kept exploring by the entropy term.",
        "steps": None,
        "kl_anchor": None,
        "expected_effect": "A faster rise of the reward at a KL below 0.1.",
        "confidence": 0.6,
        **values,
    }


KEEP = ("keep_training", {"reason": "It is within two standard errors of the best strategy and still climbs."})


RUNNING = "is running, step"


def user(body: Body) -> Calls:
    """A careful user of the tools: reads and looks at the phase that just ended, launches from the best; lets run."""
    last = told(body)
    if RUNNING in last:
        return [KEEP]
    if ended := re.search(r"^(n\d+) (finished|stopped|failed) at step", last, re.MULTILINE):
        return [("read_metrics", {"node": ended[1], "metrics": None})]
    if read := re.match(r"# (n\d+) ", last):
        return [("look_at_plot", {"node": read[1]})]
    return [launch(len(called(body, "launch_phase")), best_of(body))]


def best_of(body: Body) -> str:
    """The best phase the conversation speaks of last; the base before the first phase ended."""
    found = re.findall(
        r"Best so far: (n\d+)", "\n".join(words_of(m) for m in body["messages"] if m["role"] != "system")
    )
    return found[-1] if found else "n0"


def answering(say: Callable[[Body], Calls]) -> Callable[[int, Body], Completion]:
    """A script of `llm_kit.Endpoint`."""
    return lambda index, body: tool_calls(say(body))
