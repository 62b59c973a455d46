"""The noisy annotator: who wrote the demonstrations an embedded base model starts from (`llmzero.trainers.nano`).

It knows the answer format and edits SMILES as text, but checks the chemistry of only a share of its work, and has
three bad habits: handing the source back, gluing the group on as a second fragment, and mixing up groups. The base
model thereby learns which answers are possible, not which are right in context: that is left to reinforcement learning.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llmzero.domain.examples import Example, Message, Transcript
from llmzero.tasks.chemcot import chem, mini, prompts, reward

_ATOM: Final = re.compile(r"(?:Cl|Br|\[[^\]]+\]|[A-Za-z])[0-9]*")
_TOKEN: Final = re.compile(r"Cl|Br|\[[^\]]+\]|.")
_TRIES: Final = 6
ATOMS: Final = ("Cl", "Br", "[nH]", "[N+]", "[O-]")


@dataclass(frozen=True, slots=True)
class Habits:
    """How often the annotator does what: shares of all answers of a kind."""

    copies: float = 0.22
    glues: float = 0.28
    edit_checked: float = 0.5
    group_first: float = 0.4
    wrong_group: float = 0.05
    count_right: float = 0.9
    scaffold_right: float = 0.8


_STREAM: Final = 777
_UNCHECKED: Final = Habits(copies=0.0, glues=0.0, edit_checked=0.0, wrong_group=0.0)
MIX: Final = (
    ("add", 0.25),
    ("delete", 0.2),
    ("sub", 0.25),
    ("fg_count", 0.12),
    ("ring_count", 0.1),
    ("Murcko_scaffold", 0.08),
)
"""Sub-task shares of the drawn questions; `demonstrations` adds two more for every edit."""


def words() -> tuple[str, ...]:
    """Pieces worth one token each: the fixed parts of prompts and answers, group names, SMILES atoms."""
    pieces = [piece for text in prompts.TEMPLATES.values() for piece in re.split(r"\{\w+\}", text)]
    frames = [f'{{"{key}": "' for key in prompts.ANSWER_FORMS]
    every = [*pieces, *prompts.ANSWER_FORMS.values(), *frames, '"}', *chem.GROUPS, "Yes", "No", *ATOMS]
    return tuple(dict.fromkeys(word for word in every if word))


def demonstrations(count: int, seed: int, habits: Habits = Habits()) -> Iterator[tuple[tuple[Message, ...], str]]:
    """(prompt, answer) pairs on training scaffolds only, for `count` drawn questions.

    Each edit also gives a shuffled-string edit, which teaches copying of any molecule, and a count of its source.
    """
    rng = random.Random(seed)
    for example in mini.build("train", count, _STREAM + seed, mini.Difficulty(mix=MIX)):
        yield prompts.messages(example), annotate(example, rng, habits)
        if example.fields["kind"] == "edit":
            text, molecule = scrambled(example, rng), counted(example, rng)
            yield prompts.messages(text), annotate(text, rng, _UNCHECKED)
            yield prompts.messages(molecule), annotate(molecule, rng, habits)


def annotate(example: Example, rng: random.Random, habits: Habits) -> str:
    """One demonstration answer, in the asked JSON form."""
    fields = example.fields
    match fields["kind"]:
        case "edit":
            value = _edit(example, rng, habits)
        case "count":
            value = str(_count(int(str(fields["gold"])), rng, habits))
        case _:
            value = str(fields["gold" if rng.random() < habits.scaffold_right else "source"])
    return prompts.answer(value, str(fields["key"]))


def scrambled(example: Example, rng: random.Random) -> Example:
    """The same edit asked of a shuffled string: no chemistry left in it, only copying and editing text to learn.

    A group to take off is written back in afterwards, since shuffling tears it apart.
    """
    tokens = _TOKEN.findall(str(example.fields["source"]))
    rng.shuffle(tokens)
    source, removed = "".join(tokens), str(example.fields["removed"])
    source = _insert(source, removed, rng, _UNCHECKED.group_first) if removed else source
    return Example(example.id, example.subtask, {**example.fields, "source": source})


def counted(example: Example, rng: random.Random) -> Example:
    """A counting question about an edit's source: more molecules to learn counting from."""
    group, source = rng.choice(mini.COUNT_GROUPS), str(example.fields["source"])
    gold = chem.count_group(chem.source_mol(source), group)
    return Example(
        example.id, "fg_count", {"kind": "count", "key": "count", "source": source, "group": group, "gold": gold}
    )


def _count(gold: int, rng: random.Random, habits: Habits) -> int:
    return gold if rng.random() < habits.count_right else max(0, gold + rng.choice((-1, 1)))


def _edit(example: Example, rng: random.Random, habits: Habits) -> str:
    source, habit = str(example.fields["source"]), rng.random()
    if habit < habits.copies:
        return source
    if habit < habits.copies + habits.glues:
        return f"{source}.{rng.choice(chem.GROUPS[_any_group(example)].tails)}"
    if rng.random() >= habits.edit_checked:
        return _attempt(example, rng, habits)
    attempts = (_attempt(example, rng, habits) for _ in range(_TRIES))
    return next((each for each in attempts if _right(example, each)), str(example.fields["gold"]))


def _any_group(example: Example) -> str:
    return str(example.fields["added"] or example.fields["removed"])


def _right(example: Example, smiles: str) -> bool:
    return reward.score(example, Transcript.of(prompts.answer(smiles))).value == 1.0


def _attempt(example: Example, rng: random.Random, habits: Habits) -> str:
    """One edit of the source's text, as a hasty annotator would make it."""
    source = str(example.fields["source"])
    added, removed = (str(example.fields[name]) for name in ("added", "removed"))
    if rng.random() < habits.wrong_group:
        added = added and rng.choice(mini.EDIT_GROUPS)
        removed = removed and rng.choice(mini.EDIT_GROUPS)
    if not removed:
        return _insert(source, added, rng, habits.group_first)
    spots = _occurrences(source, removed)
    if not spots:
        return source
    start, end, at_head = rng.choice(spots)
    return source[:start] + _piece(source, start, end, added, at_head, rng) + source[end:]


def _insert(source: str, group: str, rng: random.Random, group_first: float) -> str:
    """The group written first, or last, or as a branch after a random atom."""
    if rng.random() < group_first:
        return rng.choice(chem.GROUPS[group].heads) + source
    spot = rng.choice([match.end() for match in _ATOM.finditer(source)])
    tail = rng.choice(chem.GROUPS[group].tails)
    return source + tail if spot == len(source) else f"{source[:spot]}({tail}){source[spot:]}"


def _occurrences(source: str, group: str) -> list[tuple[int, int, bool]]:
    """Where the group may be written: (start, end, at the head); a branch is taken with its parentheses."""
    known = chem.GROUPS[group]
    heads = [(0, len(head), True) for head in known.heads if source.startswith(head)]
    branches = [
        (match.start(), match.end(), False)
        for tail in known.tails
        for match in re.finditer(re.escape(f"({tail})"), source)
    ]
    ends = [(len(source) - len(tail), len(source), False) for tail in known.tails if source.endswith(tail)]
    return heads + branches + ends


def _piece(source: str, start: int, end: int, group: str, at_head: bool, rng: random.Random) -> str:
    """What stands where the removed group stood."""
    if not group:
        return ""
    if at_head:
        return rng.choice(chem.GROUPS[group].heads)
    tail = rng.choice(chem.GROUPS[group].tails)
    return f"({tail})" if source[start:end].startswith("(") else tail
