"""The docs say what the program does: every command, flag, setting and exporter is documented, and links hold."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from llmzero import wiring
from llmzero.cli import SEARCH_FLAGS, build_parser
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.settings import settings_reference

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "runs" / "README.md", *ROOT.glob("docs/**/*.md")])
USER_DOCS = "\n".join(p.read_text(encoding="utf-8") for p in PAGES)


def commands() -> list[str]:
    return [c for action in build_parser()._actions for c in (action.choices or {}) if isinstance(action.choices, dict)]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    assert f"llmzero {command}" in USER_DOCS


@pytest.mark.parametrize("flag", [name for name, _ in SEARCH_FLAGS])
def test_every_search_flag_is_documented(flag: str) -> None:
    assert f"`--{flag}`" in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


FLAG_OF = {"tasks": "--task", "exporters": "--format", "proposers": "--agent", "stoppers": "--stopper"}


@pytest.mark.parametrize("group", FLAG_OF)
def test_every_plug_in_is_documented_where_it_is_chosen(group: str) -> None:
    """A line of the docs names the plug-in and the flag that chooses it."""
    lines = [line for line in USER_DOCS.splitlines() if FLAG_OF[group] in line]
    for name in wiring.names(group):
        assert any(re.search(rf"\b{name}\b", line) for line in lines), f"{FLAG_OF[group]} {name}"


def test_settings_with_names_say_the_names() -> None:
    settings = {f.name: f.metadata["doc"] for f in fields(RunConfig) if "doc" in f.metadata}
    for setting, group in (("agent", "proposers"), ("stopper", "stoppers"), ("trainer", "trainers")):
        for name in wiring.names(group):
            assert re.search(rf"\b{name}\b", settings[setting]), f"{setting}: {name}"


def test_settings_page_is_the_generated_reference() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_reference(), "write it anew: python -m llmzero.settings > docs/settings.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_hold(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_commands_in_the_docs_parse() -> None:
    lines = re.findall(r"^ *(?:\$ )?(?:\.venv/bin/)?llmzero (.+?)(?:\s{2,}.*)?$", USER_DOCS, flags=re.MULTILINE)
    assert len(lines) >= 12
    for line in lines:
        words = line.split("#")[0].split()
        try:
            build_parser().parse_args(words)
        except UsageError as error:
            pytest.fail(f"llmzero {line}: {error}")


def test_toml_in_the_docs_is_accepted(tmp_path: Path) -> None:
    from llmzero.settings import load_settings

    for page in PAGES:
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            file = tmp_path / "settings.toml"
            file.write_text(block)
            load_settings(file, {"model": "owner/name"})
