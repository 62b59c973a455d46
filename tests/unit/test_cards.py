"""Knowledge cards: complete, short, explaining, forbidding nothing; a user's file replaces ours or says why not."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmzero.agents.cards import FILES, HYPER_KEYS, KEYS, NAMES, Card, card_text, cards_text, load_cards
from llmzero.domain.errors import UsageError
from llmzero.domain.series import METRICS
from llmzero.domain.types import HyperParams

CARDS = load_cards()
PACKAGED = Path(str(files("llmzero"))) / "prompts" / "knowledge"
FORBIDDING = (
    r"never|must|should|shall|ought|cannot|can't|do not (?!compare)|don't|avoid|forbid\w*|forbidden|prohibit\w*"
    r"|refrain|always|not allowed|make sure|be sure|stay away"
)
MAX_WORDS = 110
MAX_CHARACTERS = 850
each_card = pytest.mark.parametrize("card", CARDS, ids=lambda c: f"{c.kind}-{c.name}")


def content(file: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PACKAGED / file).read_text(encoding="utf-8"))
    return loaded


def forbidding(text: str) -> list[str]:
    return re.findall(rf"\b(?:{FORBIDDING})\b", text, flags=re.IGNORECASE)


def written(folder: Path, file: str, value: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(value if isinstance(value, str) else yaml.safe_dump(value), encoding="utf-8")
    return folder


def test_every_metric_has_one_card_and_every_metric_card_a_metric() -> None:
    assert sorted(c.name for c in CARDS if c.kind == "metric") == sorted(METRICS)


def test_every_hyperparameter_has_one_card_and_every_such_card_a_hyperparameter() -> None:
    names = {f.name for f in fields(HyperParams)} - {"extra"} | {"kl_anchor", "steps"}
    assert sorted(c.name for c in CARDS if c.kind == "hyperparameter") == sorted(names)


@each_card
def test_a_card_is_short(card: Card) -> None:
    text = card_text(card)
    assert len(re.findall(r"\S*\w\S*", text)) < MAX_WORDS
    assert len(text) < MAX_CHARACTERS


@each_card
def test_a_card_explains_and_forbids_nothing(card: Card) -> None:
    assert not forbidding(card_text(card))


def test_the_word_list_finds_orders() -> None:
    assert all(map(forbidding, ("Never use it.", "do not raise it", "It must fall.", "Avoid 0.", "Don't.")))
    assert not forbidding("levels do not compare")


@each_card
def test_a_card_says_how_well_it_is_known(card: Card) -> None:
    assert bool(card.sources) == (card.basis != "definition")
    assert all(len(source) < 45 and "://" not in source for source in card.sources)


@each_card
def test_a_card_is_coupled_with_others_that_exist(card: Card) -> None:
    names = [name for name, _ in card.moves_with]
    assert len(names) >= 2
    assert len(set(names)) == len(names)
    assert set(names) <= {*NAMES["metric"], *NAMES["hyperparameter"]}
    assert card.name not in names or card.name == "learning_rate"


@each_card
def test_only_hyperparameters_have_effects_and_they_speak_of_tiny_bases(card: Card) -> None:
    given = [bool(getattr(card, key)) for key in HYPER_KEYS]
    assert given == [card.kind == "hyperparameter"] * len(HYPER_KEYS)
    assert card.kind == "metric" or "tiny embedded base" in card.typical


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("clip_ratio", "metric", "At one update per batch the ratio is 1"),
        ("kl", "metric", "Absent at kl_coef 0"),
        ("entropy", "metric", "temperature applied"),
        ("loss", "metric", "near 0 by construction"),
        ("grad_norm", "metric", "1/cap under dr_grpo"),
        ("kl_coef", "hyperparameter", "At 0 no reference is loaded"),
        ("clip_low", "hyperparameter", "Inert at one update per batch"),
        ("clip_high", "hyperparameter", "Inert at one update per batch"),
        ("prompts_per_step", "hyperparameter", "a divisor of it"),
        ("max_completion_tokens", "hyperparameter", "scale with 1/cap"),
        ("mask_truncated", "hyperparameter", "Contested"),
        ("kl_anchor", "hyperparameter", "Inert at kl_coef 0"),
    ],
)
def test_the_known_traps_are_told(name: str, kind: str, said: str) -> None:
    assert said in card_text(next(c for c in CARDS if (c.name, c.kind) == (name, kind)))


def test_text_follows_the_order_of_names_and_names_each_card_once() -> None:
    text = cards_text(CARDS, ["kl", "clip_low", "kl", "entropy"])
    assert re.findall(r"^### (\w+):", text, flags=re.MULTILINE) == ["kl", "clip_low", "entropy"]
    assert text == cards_text(tuple(reversed(CARDS)), ["kl", "clip_low", "entropy"])
    assert text == cards_text(load_cards(), ["kl", "clip_low", "entropy"])


def test_a_name_shared_by_a_metric_and_a_hyperparameter_gives_both_and_an_unknown_one_nothing() -> None:
    text = cards_text(CARDS, ["learning_rate", "top_k"])
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "### learning_rate: Effective learning rate (metric; per update)",
        "### learning_rate: Peak learning rate (hyperparameter; per update)",
    ]
    assert cards_text(CARDS, ["top_k"]) == cards_text(CARDS, []) == ""


def test_the_text_of_a_card_word_for_word() -> None:
    card = Card(
        kind="hyperparameter",
        name="top_k",
        title="Top-k",
        unit="tokens",
        what="W.",
        read="R.",
        moves_with=(("top_p", "both cut"), ("entropy", "why")),
        basis="documented",
        sources=("A", "B"),
        effect_up="U.",
        effect_down="D.",
        typical="T.",
        trap="X.",
    )
    assert card_text(card) == (
        "### top_k: Top-k (hyperparameter; tokens)\n- What: W.\n- Read: R.\n- Up: U.\n- Down: D.\n- Typical: T.\n"
        "- Trap: X.\n- Moves with: top_p (both cut); entropy (why)\n- Basis: documented (A; B)"
    )


def test_the_text_of_all_cards_is_plain_and_fits_a_prompt() -> None:
    text = cards_text(CARDS, [*NAMES["metric"], *NAMES["hyperparameter"]])
    assert text.count("### ") == len(CARDS)
    assert text.isascii()
    assert len(text) < 24_000
    assert all(line.startswith(("### ", "- ")) for line in text.splitlines() if line)


def test_a_users_file_replaces_ours_whole_and_leaves_the_other_alone(tmp_path: Path) -> None:
    own = {"version": 1, "cards": [{**content("metrics.yaml")["cards"][3], "title": "My KL"}]}
    cards = load_cards(written(tmp_path, "metrics.yaml", own))
    assert [(c.name, c.title) for c in cards if c.kind == "metric"] == [("kl", "My KL")]
    assert [c for c in cards if c.kind == "hyperparameter"] == [c for c in CARDS if c.kind == "hyperparameter"]


def test_a_user_may_add_a_card_for_a_further_field_of_the_trainer(tmp_path: Path) -> None:
    own = content("hyperparameters.yaml")
    own["cards"].append({**own["cards"][0], "name": "top_k", "moves_with": {"top_p": "both cut", "top_k": "itself"}})
    cards = load_cards(written(tmp_path, "hyperparameters.yaml", own))
    assert len(cards) == len(CARDS) + 1
    assert cards_text(cards, ["top_k"]).startswith("### top_k: ")


def test_a_folder_without_knowledge_changes_nothing(tmp_path: Path) -> None:
    assert load_cards(tmp_path) == load_cards(tmp_path / "absent") == CARDS


BAD_FILES = {
    "not YAML": ("version: [1\n", "not YAML"),
    "empty": ("", "not a mapping with the keys version, cards"),
    "old": ({"version": 0, "cards": []}, "key 'version': 0"),
    "versionless": ({"cards": []}, "key 'version': missing"),
    "stray": ({"version": 1, "cards": [], "card": []}, "key 'card': unknown"),
    "mapping": ({"version": 1, "cards": {"kl": {}}}, "key 'cards': not a list"),
    "text": ({"version": 1, "cards": ["kl"]}, "card 1: not a mapping"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_used_is_one_line_with_its_name(tmp_path: Path, case: str) -> None:
    value, said = BAD_FILES[case]
    refused(written(tmp_path, "metrics.yaml", value), "metrics.yaml", said)


BAD_CARDS: list[tuple[dict[str, Any], str]] = [
    ({"unit": None}, "key 'unit': None is not a text"),
    ({"unit": 1}, "key 'unit': 1 is not a text"),
    ({"read": "  "}, "key 'read': '  ' is not a text"),
    ({"basis": "rumour"}, "key 'basis': 'rumour'; valid: common practice, definition, documented"),
    ({"sources": "TRL"}, "key 'sources': not a list"),
    ({"sources": [""]}, "key 'sources': '' is not a text"),
    ({"moves_with": ["kl"]}, "key 'moves_with': not a mapping"),
    ({"moves_with": {"kl_coeff": "why"}}, "key 'moves_with': no card is named 'kl_coeff'; did you mean kl_coef"),
    ({"moves_with": {"kl_coef": ""}}, "key 'moves_with': '' is not a text"),
    ({"moves_with": {True: "why"}}, "key 'moves_with': True is not a text"),
    ({"trap": "a metric has none"}, "key 'trap': unknown"),
    ({"titel": "x"}, "key 'titel': unknown; did you mean title"),
]


@pytest.mark.parametrize(("change", "said"), BAD_CARDS, ids=[said for _, said in BAD_CARDS])
def test_a_bad_card_is_one_line_with_file_card_and_key(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    own = content("metrics.yaml")
    own["cards"][3] |= change
    refused(written(tmp_path, "metrics.yaml", own), "metrics.yaml: card 'kl'", said)


@pytest.mark.parametrize(("file", "key"), [(file, key) for file, kind in FILES.items() for key in KEYS[kind]])
def test_every_key_is_required(tmp_path: Path, file: str, key: str) -> None:
    own = content(file)
    name = own["cards"][1]["name"]
    del own["cards"][1][key]
    refused(written(tmp_path, file, own), f"card {'2' if key == 'name' else repr(name)}", f"key {key!r}: missing")


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    own = content("metrics.yaml")
    own["cards"].append(own["cards"][3])
    refused(written(tmp_path, "metrics.yaml", own), "metrics.yaml: card 'kl'", "key 'name': used twice")


def test_a_misspelled_file_is_refused_and_not_ignored(tmp_path: Path) -> None:
    refused(written(tmp_path, "metric.yaml", content("metrics.yaml")), "metric.yaml", "did you mean metrics.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.yaml").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path, "metrics.yaml", "cannot be read")


def refused(folder: Path, *said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_cards(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert not [part for part in said if part not in message], message
