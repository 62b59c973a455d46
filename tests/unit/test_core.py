"""The trusted core stays small and light: what decides and what is remembered can be read in one sitting."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "llmzero"
CORE = sorted([*PACKAGE.glob("domain/*.py"), *PACKAGE.glob("search/*.py"), PACKAGE / "store" / "journal.py"])
LAYOUT = {getattr(tokenize, n) for n in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")}
HEAVY = {"torch", "ray", "openai", "pydantic", "transformers", "trl", "pandas", "matplotlib", "rich", "datasets"}


def code_lines(file: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    source = file.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {n for t in tokens if t.type not in LAYOUT for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_core_is_under_1500_lines_of_code() -> None:
    assert 500 < sum(code_lines(file) for file in CORE) < 1500


@pytest.mark.parametrize("file", CORE, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_the_core_imports_nothing_heavy(file: Path) -> None:
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    names = {a.name for n in tree if isinstance(n, ast.Import) for a in n.names}
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    names |= {n.module or "" for n in tree if isinstance(n, ast.ImportFrom)}
    assert not {name.partition(".")[0] for name in names} & HEAVY
