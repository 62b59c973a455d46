"""The fixed workflow (`--agent llm`) against the skill agent (`--agent skill`): calls and tokens of whole searches.

    python benchmarks/agent_cost.py       writes benchmarks/agent_cost.md; finished searches are kept and not run twice

Each row is a real search on the sim trainer, default settings (60 steps a phase, evaluations every 10, so four
check-ins a phase past the grace period), one worker, over HTTP against a scripted endpoint. The scripts answer as
briefly as a sensible model would, the same words on both sides, and think no tokens; no phase is stopped. Tokens are
counted from the messages sent, the same way for all: text by the rule of `llmzero.agents.llm.counting`, a picture as
width x height / 750, one provider's published rule (1,434 for the plot of a path, 874 for the overlay of a running
phase). Cacheable is the part of a prompt, from its start, that an earlier call of the same search began with, in whole
messages; what a provider then really keeps is its own affair. Cost is in units of a fresh prompt token: a cached one
0.1, a completion token 4.

Fixed workflow: one question a phase (metrics, plot, siblings, path in it) and, with `--stopper agent`, one with a
picture for each check-in; with `both` only where the rule would stop a phase, which it wanted nowhere here.

Skill agent, by habit:

* frugal: launches on the score it is told, reads and looks at nothing; answers each check-in at once.
* careful: reads the metrics of each phase that ended and looks at its plot, once; answers each check-in at once.
* same pictures: careful, and looks at the overlay at each check-in, as `--stopper agent` is shown it each time.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import WORK, table, write_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from llm_kit import Endpoint
from llm_replies import Completion, json_reply, tool_calls
from skill_kit import KEEP, RUNNING, Body, Calls, best_of, called, launch, told, user

from llmzero.agents.llm.counting import image_tokens, text_tokens
from llmzero.cli import main as llmzero

SIZES = (5, 10, 20)
CACHED, COMPLETION = 0.1, 4.0
GOAL = 44
Segment = tuple[str, int]
"""A piece of a prompt and its tokens."""
Counts = dict[tuple[str, int], dict[str, int]]
"""By agent and nodes."""


def workflow(body: Body) -> Completion:
    """The fixed workflow's model: the skill agent's words as replies by schema."""
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return json_reply({"action": "continue", **KEEP[1]})
    parent_free = {k: v for k, v in launch(len(told(body)), "")[1].items() if k != "parent"}
    return json_reply(parent_free)


def frugal(body: Body) -> Calls:
    return [KEEP] if RUNNING in told(body) else [launch(len(called(body, "launch_phase")), best_of(body))]


def looking(body: Body) -> Calls:
    last = told(body)
    if RUNNING in last:
        return [("look_at_plot", {"node": last[: last.index(f" {RUNNING}")].split()[-1]})]
    return [KEEP] if last.startswith("validation of") else user(body)


SKILL: dict[str, Callable[[Body], Calls]] = {"frugal": frugal, "careful": user, "same pictures": looking}
AGENTS: dict[str, tuple[tuple[str, ...], Callable[[Body], Completion]]] = {
    "workflow, stopper agent": (("--agent", "llm", "--stopper", "agent"), workflow),
    "workflow, stopper both": (("--agent", "llm", "--stopper", "both"), workflow),
    **{f"skill, {n}": (("--agent", "skill"), lambda body, say=say: tool_calls(say(body))) for n, say in SKILL.items()},
}


def segments(body: Body) -> list[Segment]:
    """A prompt in the order providers build it: tools or schema, then the messages, part by part."""
    given = json.dumps(body.get("tools") or body.get("response_format") or "")
    found = [(given, text_tokens(given))]
    for message in body["messages"]:
        content = message.get("content") or ""
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            found.append(_segment(part))
        for call in message.get("tool_calls", ()):
            words = f"{call['function']['name']} {call['function']['arguments']}"
            found.append((words, text_tokens(words)))
    return found


def _segment(part: dict[str, Any]) -> Segment:
    if part["type"] == "text":
        return part["text"], text_tokens(part["text"])
    url = part["image_url"]["url"]
    return url, image_tokens(base64.b64decode(url.partition(",")[2]))


def reply_tokens(answer: Completion) -> int:
    made = answer.message.get("tool_calls", ())
    words = [f"{c['function']['name']} {c['function']['arguments']}" for c in made]
    return text_tokens("\n".join([answer.message["content"] or "", *words]))


class Meter:
    """Counts what goes through; `seen` is a trie of the prompts so far."""

    def __init__(self, say: Callable[[Body], Completion]) -> None:
        self.say = say
        self.seen: dict[str, Any] = {}
        self.count = {"calls": 0, "prompt": 0, "cacheable": 0, "completion": 0, "largest": 0, "pictures": 0}

    def __call__(self, index: int, body: Body) -> Completion:
        answer, count, at, known = self.say(body), self.count, self.seen, True
        found = segments(body)
        for words, tokens in found:
            known = known and words in at
            count["cacheable"] += tokens if known else 0
            at = at.setdefault(words, {})
        prompt = sum(tokens for _, tokens in found)
        count["calls"] += 1
        count["prompt"] += prompt
        count["completion"] += reply_tokens(answer)
        count["largest"] = max(count["largest"], prompt)
        count["pictures"] += sum(words.startswith("data:image/png") for words, _ in found)
        return answer


def measured(name: str, nodes: int) -> dict[str, int]:
    """The counts of one search, kept once it is finished."""
    out = WORK / "agent_cost" / f"{name.replace(', ', '-').replace(' ', '-')}-{nodes}"
    kept = out / "count.json"
    if not kept.is_file():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        flags, say = AGENTS[name]
        meter = Meter(say)
        with Endpoint(meter, strict=True) as endpoint:
            where = ["--llm-model", "scripted", "--llm-base-url", endpoint.base_url, "--out", str(out), "--json"]
            search = ["search", "--trainer", "sim", "--workers", "1", "--nodes", str(nodes), *where, *flags]
            if llmzero(search) != 0:
                raise SystemExit(f"the search of {name} at {nodes} nodes failed")
        kept.write_text(json.dumps(meter.count))
    return dict(json.loads(kept.read_text()))


def cost(count: dict[str, int]) -> float:
    """In fresh prompt tokens."""
    return count["prompt"] - (1 - CACHED) * count["cacheable"] + COMPLETION * count["completion"]


def tokens(count: dict[str, int]) -> int:
    return count["prompt"] + count["completion"]


def main() -> None:
    os.environ.pop("OPENAI_API_KEY", None)
    counts = {(name, nodes): measured(name, nodes) for nodes in SIZES for name in AGENTS}
    head = (
        "nodes",
        "agent",
        "calls",
        "prompt tokens",
        "of it cacheable",
        "completion tokens",
        "largest prompt",
        "cost",
    )
    rows = [
        (
            nodes,
            name,
            c["calls"],
            f"{c['prompt']:,}",
            f"{c['cacheable'] / c['prompt']:.0%}",
            f"{c['completion']:,}",
            f"{c['largest']:,}",
            f"{cost(c):,.0f}",
        )
        for (name, nodes), c in counts.items()
    ]
    flows = [name for name in AGENTS if name.startswith("workflow")]
    ratios = [
        (
            nodes,
            f"skill, {habit}",
            *(f"{_ratio(counts, habit, nodes, flow, of):.1f}" for flow in flows for of in MEASURES.values()),
        )
        for nodes in SIZES
        for habit in SKILL
    ]
    columns = [f"{what}, over {flow}" for flow in flows for what in MEASURES]
    verdict = "\n".join(_verdict(counts, flow, what, of) for flow in flows for what, of in MEASURES.items())
    write_table(
        "agent_cost.md",
        f"# The fixed workflow against the skill agent\n\n{__doc__}\n{table(head, rows)}\n\n"
        f"## How many times as much the skill agent takes\n\n{table(('nodes', 'agent', *columns), ratios)}\n\n"
        f"The goal is {GOAL} times at 20 nodes.\n\n{verdict}",
    )


MEASURES: dict[str, Callable[[dict[str, int]], float]] = {"all tokens": tokens, "cost with a cache": cost}


def _ratio(counts: Counts, habit: str, nodes: int, flow: str, of: Callable[[dict[str, int]], float]) -> float:
    return of(counts[f"skill, {habit}", nodes]) / of(counts[flow, nodes])


def _verdict(counts: Counts, flow: str, what: str, of: Callable[[dict[str, int]], float]) -> str:
    """Which habits reach the goal at the largest size."""
    ratios = {habit: _ratio(counts, habit, SIZES[-1], flow, of) for habit in SKILL}
    told = [f"{habit} {'reaches' if ratio >= GOAL else 'misses'} it ({ratio:.1f})" for habit, ratio in ratios.items()]
    return f"* {what}, over {flow}: {'; '.join(told)}."


if __name__ == "__main__":
    main()
