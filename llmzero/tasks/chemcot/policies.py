"""Fixed ways to answer ChemCoT questions: the references, nothing at all, and every shortcut known to fool checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from llmzero.domain.examples import Example
from llmzero.tasks.base import Policy
from llmzero.tasks.chemcot.prompts import answer

MOLECULES: Final = frozenset({"add", "delete", "sub", "Murcko_scaffold"})
EDITS: Final = frozenset({"add", "delete", "sub"})
COUNTS: Final = ("fg_count", "ring_count")
CHOICES: Final = ("ring_system_scaffold", "equivalence")
MOLECULE_BOUND: Final = 0.05
CHANCE_SLACK: Final = 0.03

_OPTIMISATION_KEY = "Final Target Molecule"


def policies(chance: Mapping[str, float]) -> Sequence[Policy]:
    """All policies; `chance` is the best constant answer's share for each counting or yes/no sub-task."""
    return (
        Policy("reference", "oracle", 0.99, lambda e: answer(e.fields["gold"], key(e))),
        Policy("empty text", "noop", 0.0, lambda _: ""),
        Policy("empty object", "noop", 0.0, lambda _: "{}"),
        Policy("source handed back", "unsolved", 0.0, lambda e: answer(e.fields["source"], key(e))),
        *_molecule_shortcuts(),
        *_constant_shortcuts(chance),
        *_format_shortcuts(),
    )


def key(example: Example) -> str:
    return str(example.fields["key"])


def _says(make: Callable[[str], str]) -> Callable[[Example], str]:
    """Answers a molecule made from the source, under the right key."""
    return lambda example: answer(make(str(example.fields["source"])), key(example))


def _molecule_shortcuts() -> list[Policy]:
    """Answers that need no chemistry; the official group counts let several of them pass."""
    made: list[tuple[str, Callable[[str], str]]] = [
        ("empty molecule", lambda _: ""),
        ("methane", lambda _: "C"),
        ("group as a second fragment", lambda source: f"{source}.OC=O"),
        ("group alone", lambda _: "OC=O"),
        ("benzene", lambda _: "c1ccccc1"),
        ("long alkane", lambda _: "C" * 20),
        ("methane as a second fragment", lambda source: f"{source}.C"),
        ("alkyl chain in front", lambda source: f"CCCC{source}"),
    ]
    return [Policy(name, "shortcut", MOLECULE_BOUND, _says(make), MOLECULES) for name, make in made] + [
        Policy("copied input as scaffold", "shortcut", MOLECULE_BOUND, _says(str), frozenset({"Murcko_scaffold"})),
        Policy("another task's key", "shortcut", MOLECULE_BOUND, _other_key, EDITS),
    ]


def _other_key(example: Example) -> str:
    return answer(example.fields["gold"], _OPTIMISATION_KEY)


def _constant_shortcuts(chance: Mapping[str, float]) -> list[Policy]:
    """One answer for every item of a sub-task."""
    said = [(name, str(count), "count") for name in COUNTS for count in range(4)]
    said += [(name, word, "output") for name in CHOICES for word in ("Yes", "No")]
    return [
        Policy(
            f"{name}: always {word}", "shortcut", chance[name] + CHANCE_SLACK, _constant(word, under), frozenset({name})
        )
        for name, word, under in said
        if name in chance
    ]


def _constant(word: str, under: str) -> Callable[[Example], str]:
    return lambda _: answer(word, under)


def _format_shortcuts() -> list[Policy]:
    """Right answers hidden where they must not count."""
    return [
        Policy("two answers, the right one last", "shortcut", 0.0, lambda e: _wrong(e) + "\n" + _right(e)),
        Policy("two answers, the right one first", "shortcut", 0.0, lambda e: _right(e) + "\n" + _wrong(e)),
        Policy("one key twice", "shortcut", 0.0, lambda e: _wrong(e)[:-1] + ", " + _right(e)[1:]),
        Policy("only inside think", "shortcut", 0.0, lambda e: f"<think>{_right(e)}</think>"),
        Policy("inside an unclosed think", "shortcut", 0.0, lambda e: f"<think>{_right(e)}"),
        Policy("no JSON", "shortcut", 0.0, lambda e: str(e.fields["gold"])),
    ]


def _right(example: Example) -> str:
    return answer(example.fields["gold"], key(example))


def _wrong(example: Example) -> str:
    return answer("77" if example.fields["kind"] == "count" else "S", key(example))
