"""The report in a real browser: it draws, answers the keyboard, and runs nothing that a model wrote."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmzero.report.render import render

GOLDEN = Path(__file__).parents[1] / "golden"
TREES = runpy.run_path(str(GOLDEN / "report_trees.py"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]

playwright = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a tree's report; afterwards there must be no console message, error or request but the file itself."""
    complaints: list[str] = []
    pages = []

    def opened(tree: str, scheme: str = "light") -> Any:
        file = tmp_path / f"{tree}.html"
        file.write_text(render(TREES[tree](), TREES["example_rows"]()), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda r: complaints.append(r.url) if r.url != file.as_uri() else None)
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []


def test_the_best_node_is_open_and_the_result_is_said(open_page: Any) -> None:
    page = open_page("finished_tree")
    assert "from 0.214 to 0.489 on validation; held-out test 0.209 to 0.471" in page.inner_text("h1")
    assert page.locator(".node").count() == 11
    assert page.inner_text(".panel h3").startswith("n7")
    assert page.locator(".panel .small-charts figure").count() == 7
    assert page.locator(".stairs tbody tr").count() == 4


def test_status_is_told_without_colour(open_page: Any) -> None:
    page = open_page("example_tree")
    looks = page.evaluate(
        """Object.fromEntries(["n4", "n3", "n5", "n10"].map((id) => {
             const named = (n) => n.querySelector(".name").textContent.endsWith(id);
             const node = [...document.querySelectorAll(".node")].find(named);
             return [id, getComputedStyle(node).borderTopStyle + node.querySelector(".glyph").textContent];
           }))"""
    )
    assert looks == {"n4": "solid●", "n3": "dashed■", "n5": "double✕", "n10": "dotted▶"}


def test_click_and_keyboard_choose_a_node(open_page: Any) -> None:
    page = open_page("example_tree")
    page.get_by_role("treeitem", name="n5, failed").click()
    assert "loss is not finite at step 38" in page.inner_text(".panel")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("n2,")
    assert page.inner_text(".panel h3").startswith("n5")  # only Enter opens
    page.keyboard.press("Enter")
    assert page.inner_text(".panel h3").startswith("n2")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.inner_text(".panel h3").startswith("n0")


def test_one_tab_stop_for_the_tree(open_page: Any) -> None:
    page = open_page("example_tree")
    assert page.locator(".node[tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    seen = []
    for _ in range(8):
        seen.append(page.evaluate("document.activeElement.className"))
        page.keyboard.press("Tab")
    assert sum("node" in name.split() for name in seen) == 1


@pytest.mark.parametrize("tree", ["finished_tree", "example_tree", "hostile_tree"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_layout_holds(open_page: Any, tree: str, scheme: str) -> None:
    page = open_page(tree, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    overlaps = page.evaluate(
        """(() => {
             const boxes = [...document.querySelectorAll(".node")].map((n) => n.getBoundingClientRect());
             return boxes.filter((a, i) => boxes.some((b, j) => j > i && a.left < b.right && b.left < a.right
               && a.top < b.bottom && b.top < a.bottom)).length;
           })()"""
    )
    assert overlaps == 0


def test_dark_and_light_differ(open_page: Any) -> None:
    colours = [
        open_page("base_tree", scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours[0] != colours[1]


def test_nothing_a_model_wrote_runs(open_page: Any) -> None:
    page = open_page("hostile_tree")
    page.get_by_role("treeitem").nth(2).click()
    page.locator("summary").click()
    page.wait_for_timeout(300)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, iframe, object, embed, link").count() == 0
    assert page.locator("script").count() == 2
    assert "onerror" in page.inner_text(".panel")  # shown as text


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("empty_tree", "No score yet"),
        ("measuring_tree", "No score yet"),
        ("base_tree", "no phase has ended yet"),
        ("failed_tree", "2 phases so far failed"),
    ],
)
def test_empty_states(open_page: Any, tree: str, words: str) -> None:
    page = open_page(tree)
    assert words in page.inner_text("h1")
    page.locator("summary").click()
    assert "chemcot" in page.inner_text(".config")


def test_what_model_calls_took(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GOLDEN))
    asked = runpy.run_path(str(GOLDEN / "report_calls.py"))
    (tmp_path / "asked.html").write_text(render(asked["asked_tree"](), {}, asked["example_calls"]()), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "asked.html").as_uri())
    words = page.inner_text(".tiles")
    assert "Model: 5 calls (2 proposer, 3 stopper), 1 without an answer, 1 not made at the ceiling" in words
    assert (
        "23,000 + 950 tokens (17,400 cached) (2 tries without a token count), $0.0167 (2 calls without a price)"
        in words
    )
    assert "2 calls, 18,900 + 820 tokens (16,000 cached), $0.0146" in page.inner_text(".panel")
    page.get_by_role("treeitem", name="n4, finished").click()
    assert "1 call, 1 without an answer, 0 + 0 tokens, no price known" in page.inner_text(".panel")
    page.get_by_role("treeitem", name="n9, finished").click()
    assert "model calls" not in page.inner_text(".panel")
    page.close()


def test_it_prints(open_page: Any) -> None:
    page = open_page("finished_tree")
    pdf = page.pdf(prefer_css_page_size=True)
    assert 1 <= len(re.findall(rb"/Type /Page\b(?!s)", pdf)) <= 4
