"""Model calls on record for the hand-made finished run: a node asked for with a repair, judgements, and odd ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from report_trees import finished_tree

from llmzero.domain.events import Tree
from llmzero.domain.types import NodeId


def call(
    digest: str, *, name: str, about: str, tokens: tuple[int, int, int] = (9000, 7000, 400), **more: Any
) -> dict[str, Any]:
    """A call as the recorder keeps it; `tokens` are prompt, cached and completion tokens."""
    prompt, cached, completion = tokens
    reply = {"text": "{}", "error": "", "model": "m", "notes": [], "attempts": 1, "lost": 0, "latency_s": 2.0}
    usage = {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
    request = {"purpose": "propose", "about": about, "name": name, "schema": {}, "messages": []}
    return {
        "digest": digest,
        "at": f"2026-12-01T00:00:00.{digest}",
        "request": {**request, **more.get("request", {})},
        "reply": {**reply, "usage": usage, **more.get("reply", {})},
        "usd": more.get("usd"),
    }


def asked_tree() -> Tree:
    """The finished run, as if n7 had been proposed by two calls and n3 stopped after one."""
    tree = finished_tree()
    nodes = dict(tree.nodes)
    nodes["n7"] = replace(nodes["n7"], proposal=replace(nodes["n7"].proposal, proposer="llm", calls=("001", "002")))
    verdict = nodes["n3"].verdict
    assert verdict is not None
    nodes["n3"] = replace(nodes["n3"], verdict=replace(verdict, calls=("004",)))
    return replace(tree, nodes=nodes)


def example_calls() -> list[dict[str, Any]]:
    """n7 has two (n4 is what they are about), n3 two, n4 one; one was refused at the ceiling, one led nowhere."""
    repair = {"purpose": "repair"}
    return [
        call("001", name="proposal", about="n4", usd=0.0112),
        call("002", name="proposal", about="n4", tokens=(9900, 9000, 420), usd=0.0034, request=repair),
        call("003", name="verdict", about="n3", tokens=(2000, 700, 60), usd=0.0021),
        call("004", name="verdict", about="n3", tokens=(2100, 700, 70), reply={"attempts": 3, "lost": 2}),
        call("005", name="verdict", about="n4", tokens=(0, 0, 0), reply={"error": "HTTP 500", "attempts": 4}),
        call("006", name="proposal", about="n7", tokens=(0, 0, 0), reply={"error": "the ceiling", "attempts": 0}),
    ]


def named(node: NodeId) -> list[str]:
    """Digests that belong to a node of `asked_tree`; "" for those that led nowhere."""
    return {"n7": ["001", "002"], "n3": ["003", "004"], "n4": ["005"], "": ["006"]}.get(node, [])
