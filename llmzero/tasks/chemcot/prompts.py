"""What the model is asked: the benchmark's own text where a row has one, else the same facts in few words."""

from __future__ import annotations

import json
from collections.abc import Mapping

from llmzero.domain.examples import Example, Message

ADD = "Add one {added} to {source}"
DELETE = "Remove one {removed} from {source}"
SUB = "Replace one {removed} by {added} in {source}"
FG_COUNT = "Count {group} in {source}"
RING_COUNT = "Count rings {ring} in {source}"
SCAFFOLD = "Give the Murcko scaffold of {source}"
RING_SYSTEM = "Does {source} hold the ring system {ring}?"
EQUIVALENCE = "Are {source} and {other} the same molecule?"

TEMPLATES: dict[str, str] = {
    "add": ADD,
    "delete": DELETE,
    "sub": SUB,
    "fg_count": FG_COUNT,
    "ring_count": RING_COUNT,
    "Murcko_scaffold": SCAFFOLD,
    "ring_system_scaffold": RING_SYSTEM,
    "equivalence": EQUIVALENCE,
}
ANSWER_FORMS: dict[str, str] = {
    "output": '\nJSON: {"output": "..."}',
    "count": '\nJSON: {"count": "..."}',
    "Output Scaffold": '\nJSON: {"Output Scaffold": "..."}',
}


def messages(example: Example) -> tuple[Message, ...]:
    """One user message; never the gold answer."""
    return ({"role": "user", "content": text(example.subtask, example.fields)},)


def text(subtask: str, fields: Mapping[str, object]) -> str:
    query = fields.get("query")
    if isinstance(query, str) and query:
        return query
    return TEMPLATES[subtask].format_map(dict(fields)) + ANSWER_FORMS[str(fields["key"])]


def answer(value: object, key: str = "output") -> str:
    """An answer as the benchmark wants it: a JSON object with one key."""
    return json.dumps({key: str(value)})
