"""Models from the hub: one commit; one line where the hub is silent. The hub is played by its client's functions."""

import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from trainer_kit import tiny_model

from llmzero import models
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.store.checkpoints import weights_digest
from llmzero.trainers import hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(name="calls")
def _calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """A hub with one model; what was asked of it."""
    folder = tiny_model(tmp_path / "snapshots" / COMMIT)
    calls: list[tuple[str, str | None]] = []

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert not any(pattern.endswith((".bin", ".py", ".pt")) for pattern in allow_patterns)
        calls.append((name, revision))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_a_run_records_the_commit_and_goes_on_with_it(calls: list[tuple[str, str | None]], tmp_path: Path) -> None:
    config = RunConfig(model="owner/name")
    versions = models.versions(config)
    folder = tmp_path / "snapshots" / COMMIT
    assert versions["base_revision"] == COMMIT
    assert versions["base_sha256"] == weights_digest(folder)
    weights = models.base_weights(RunConfig(model="owner/name", versions=versions))
    assert (weights.path, weights.digest) == (str(folder), versions["base_sha256"])
    assert calls == [("owner/name", None), ("owner/name", COMMIT)]


def test_a_revision_may_be_written_behind_the_name(calls: list[tuple[str, str | None]]) -> None:
    hub.fetch("owner/name@v1.0")
    hub.fetch("owner/name@v1.0", COMMIT)
    assert calls == [("owner/name", "v1.0"), ("owner/name", COMMIT)]


def test_the_simulation_fetches_nothing(calls: list[tuple[str, str | None]]) -> None:
    assert "base_sha256" not in models.versions(RunConfig(model="owner/name", trainer="sim"))
    assert calls == []


@pytest.mark.usefixtures("calls")
def test_other_weights_than_the_strategy_began_with_are_refused() -> None:
    with pytest.raises(UsageError, match=r"changed since it was written.*--model"):
        models.local_model("owner/name", "chemcot", digest="0" * 64)


def test_a_silent_hub_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="model owner/name: the hub did not give it") as caught:
        hub.fetch("owner/name")
    assert "\n" not in str(caught.value)
    assert hub.shape("owner/name") == (None, None)
