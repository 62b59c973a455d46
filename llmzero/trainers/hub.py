"""Models on the Hugging Face Hub: fetched once, at one commit, safetensors only."""
# mypy: disable-error-code="import-untyped,import-not-found,unused-ignore"

from __future__ import annotations

import json
import re
from pathlib import Path

from llmzero.domain.errors import UsageError

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
"""owner/name, and a branch, tag or commit after an @ where the default branch is not meant."""

FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


def fetch(hub_id: str, revision: str = "") -> Path:
    """The local snapshot of a model, fetched where it is not in the cache yet; the folder is named by its commit.

    `revision` (a branch, tag or commit) wins over one written behind an @ in `hub_id`. Raises UsageError with the
    hub's own first line: no such model, gated, offline.
    """
    from huggingface_hub import snapshot_download

    name, _, written = hub_id.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or written or None, allow_patterns=FILES))
    except _troubles() as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"model {hub_id}: the hub did not give it: {first}; check the name, `hf auth login` for a gated model, "
            "and the network (HF_HUB_OFFLINE)"
        ) from None


def shape(hub_id: str) -> tuple[int | None, int | None]:
    """(parameters, vocabulary) from the hub's metadata, nothing of any size fetched; None where the hub is silent."""
    from huggingface_hub import get_safetensors_metadata, hf_hub_download

    name, _, revision = hub_id.partition("@")
    try:
        counts = get_safetensors_metadata(name, revision=revision or None).parameter_count
        config = json.loads(Path(hf_hub_download(name, "config.json", revision=revision or None)).read_text("utf-8"))
    except _troubles():
        return None, None
    return sum(counts.values()) or None, config.get("vocab_size")


def _troubles() -> tuple[type[Exception], ...]:
    """What the hub's client raises: its own errors, and those of the HTTP library it is built on, whichever it is."""
    from huggingface_hub import errors

    network = tuple(base for base in errors.HfHubHTTPError.__bases__ if issubclass(base, Exception))
    own = (errors.HFValidationError, errors.NotASafetensorsRepoError, errors.SafetensorsParsingError)
    return (*network, *own, OSError, ValueError)
