"""The report: one HTML file that needs nothing else, safe to open whatever a model or a task wrote into the run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.types import NodeId
from llmzero.report.ledger import Calls
from llmzero.report.view import page_data

SCRIPTS = ("dom.js", "charts.js", "tree.js", "panel.js", "page.js")

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="referrer" content="no-referrer">
<title>LLMZero report</title>
<style>{style}</style>
</head>
<body>
<main><noscript>This report draws itself with JavaScript, which is switched off.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def render(tree: Tree, rows: Mapping[NodeId, Sequence[MetricRow]], calls: Calls = ()) -> str:
    """The page of a run, in any state. `rows` are the phases' metric rows; a node without any shows no curves.
    `calls` are the run's recorded model calls, of which the page shows what they cost.

    The policy allows this very style and script (by hash) and nothing else: no network, no inline handlers, no eval.
    Data enters as JSON and reaches the document as text nodes and attributes only.
    """
    style = _static("page.css")
    script = '"use strict";\n' + "\n".join(_static(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(policy=policy, style=style, script=script, data=embed(page_data(tree, rows, calls)))


def embed(value: Any) -> str:
    """JSON that no HTML parser can take for markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _static(name: str) -> str:
    return resources.files("llmzero.report").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
