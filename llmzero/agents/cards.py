"""Knowledge cards: what each metric and hyperparameter means, written by people, to ground a model's proposals.

Cards explain and forbid nothing: the search tests what a proposer makes of them. They are data, one YAML file a kind
in `prompts/knowledge`; a file of the same name in a user's folder replaces the packaged one whole. A metric and a
hyperparameter may share a name (`learning_rate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, get_args

from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.series import METRICS
from llmzero.domain.types import HyperParams

VERSION = 1
"""Of the file format."""

Kind = Literal["metric", "hyperparameter"]
Basis = Literal["documented", "common practice", "definition"]

FILES: dict[str, Kind] = {"metrics.yaml": "metric", "hyperparameters.yaml": "hyperparameter"}

NAMES: dict[Kind, tuple[str, ...]] = {
    "metric": tuple(METRICS),
    "hyperparameter": (*(f.name for f in fields(HyperParams) if f.name != "extra"), "kl_anchor", "steps"),
}
"""What the packaged files have a card for. A user's file may leave out some, and add further fields of a trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of one metric or hyperparameter; `moves_with` pairs a coupled name with why.

    The last four fields are of hyperparameters only, "" for a metric. Of a choice, `effect_up` speaks of the options
    named in it, `effect_down` of the others.
    """

    kind: Kind
    name: str
    title: str
    unit: str
    what: str
    read: str
    moves_with: tuple[tuple[str, str], ...]
    basis: Basis
    sources: tuple[str, ...]
    effect_up: str = ""
    effect_down: str = ""
    typical: str = ""
    trap: str = ""


HYPER_KEYS = ("effect_up", "effect_down", "typical", "trap")
KEYS: dict[Kind, tuple[str, ...]] = {
    "metric": tuple(f.name for f in fields(Card) if f.name not in {"kind", *HYPER_KEYS}),
    "hyperparameter": tuple(f.name for f in fields(Card) if f.name != "kind"),
}
"""The keys of a card in its file, all of them required."""


def load_cards(folder: Path | None = None) -> tuple[Card, ...]:
    """Every card, metrics first, in the files' order.

    `folder` is a user's `--prompts DIR/knowledge`, which may hold any of the files, or not exist. Raises UsageError
    naming file, card and key.
    """
    if folder is not None:
        _refuse_strangers(folder)
    found = [pair for name, kind in FILES.items() for pair in _cards_of(_place(name, folder), kind)]
    known = {*NAMES["metric"], *NAMES["hyperparameter"], *(card.name for _, card in found)}
    for where, card in found:
        for name, _ in card.moves_with:
            if name not in known:
                raise UsageError(f"{where}, key 'moves_with': no card is named {name!r}; {did_you_mean(name, known)}")
    return tuple(card for _, card in found)


def cards_text(cards: Iterable[Card], names: Sequence[str]) -> str:
    """The named cards as Markdown, in the order of `names`, each once; a name without a card is left out."""
    known = tuple(cards)
    wanted = (card for name in dict.fromkeys(names) for card in known if card.name == name)
    return "\n\n".join(map(card_text, wanted))


def card_text(card: Card) -> str:
    """One card: a heading, then a line for each thing said."""
    coupled = "; ".join(f"{name} ({why})" for name, why in card.moves_with)
    sources = f" ({'; '.join(card.sources)})" if card.sources else ""
    lines = {
        "What": card.what,
        "Read": card.read,
        "Up": card.effect_up,
        "Down": card.effect_down,
        "Typical": card.typical,
        "Trap": card.trap,
        "Moves with": coupled,
        "Basis": card.basis + sources,
    }
    body = (f"- {label}: {text}" for label, text in lines.items() if text)
    return "\n".join((f"### {card.name}: {card.title} ({card.kind}; {card.unit})", *body))


def _place(name: str, folder: Path | None) -> Traversable:
    """The user's file where there is one, else the packaged one."""
    if folder is not None and (folder / name).exists():
        return folder / name
    return files("llmzero").joinpath("prompts", "knowledge", name)


def _refuse_strangers(folder: Path) -> None:
    """A misspelled file would be ignored in silence."""
    for file in sorted(folder.glob("*.y*ml")):
        if file.name not in FILES:
            raise UsageError(f"{file}: not a knowledge file; {did_you_mean(file.name, FILES)}")


def _cards_of(file: Traversable, kind: Kind) -> list[tuple[str, Card]]:
    """The cards of a file, each with where it stands, for messages."""
    content = _parsed(file)
    _check_keys(content, ("version", "cards"), str(file))
    if content["version"] != VERSION:
        raise UsageError(f"{file}, key 'version': {content['version']!r} cannot be read; this program reads {VERSION}")
    if not isinstance(content["cards"], list):
        raise UsageError(f"{file}, key 'cards': not a list of cards")
    found: dict[str, tuple[str, Card]] = {}
    for number, raw in enumerate(content["cards"], start=1):
        where, card = _card(raw, kind, f"{file}: card", number)
        if card.name in found:
            raise UsageError(f"{where}, key 'name': used twice; keep one card of that name")
        found[card.name] = (where, card)
    return list(found.values())


def _parsed(file: Traversable) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: not YAML ({' '.join(str(error).split())})") from None


def _card(raw: Any, kind: Kind, place: str, number: int) -> tuple[str, Card]:
    name = raw.get("name") if isinstance(raw, dict) else None
    where = f"{place} {name!r}" if name and isinstance(name, str) else f"{place} {number}"
    _check_keys(raw, KEYS[kind], where)
    plain = ("moves_with", "basis", "sources")
    texts: dict[str, Any] = {key: _text(raw[key], where, key) for key in KEYS[kind] if key not in plain}
    card = Card(
        kind=kind,
        moves_with=_coupled(raw["moves_with"], where),
        basis=_basis(raw["basis"], where),
        sources=_sources(raw["sources"], where),
        **texts,
    )
    return where, card


def _check_keys(raw: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: not a mapping with the keys {', '.join(keys)}")
    for key in raw:
        if key not in keys:
            raise UsageError(f"{where}, key {key!r}: unknown; {did_you_mean(str(key), keys)}")
    for key in keys:
        if key not in raw:
            raise UsageError(f"{where}, key {key!r}: missing")


def _text(value: Any, where: str, key: str) -> str:
    """A text on one line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise UsageError(f"{where}, key {key!r}: {value!r} is not a text; write one, in quotes where it is a number")
    return text


def _coupled(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}, key 'moves_with': not a mapping of names to reasons")
    return tuple((_text(name, where, "moves_with"), _text(why, where, "moves_with")) for name, why in value.items())


def _basis(value: Any, where: str) -> Basis:
    bases: tuple[Basis, ...] = get_args(Basis)
    for basis in bases:
        if value == basis:
            return basis
    raise UsageError(f"{where}, key 'basis': {value!r}; {did_you_mean(str(value), bases)}")


def _sources(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{where}, key 'sources': not a list of citations, which may be empty")
    return tuple(_text(source, where, "sources") for source in value)
