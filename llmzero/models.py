"""Names of models -> weights on this machine: an embedded base, a user's folder, a hub id."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from pathlib import Path

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.jobs import Weights
from llmzero.store.checkpoints import verify, weights_digest
from llmzero.trainers.hub import HUB_ID

MAX_NAME = 1000
"""Characters of a path or name."""


def resolve_model(model: str, task: str) -> str:
    """Where a model's weights are: the embedded base's folder, a user's folder, or a hub id as it is."""
    if model == "nano":
        from llmzero.trainers.nano import nano_path

        return str(nano_path(task))
    folder = Path(model)
    if len(model) > MAX_NAME or not model.isprintable():
        raise UsageError("model: neither nano, nor a folder, nor a Hugging Face id (owner/name)")
    if folder.is_dir():
        if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
            raise UsageError(f"model {model}: the folder needs a config.json and *.safetensors weights")
        return str(folder.resolve())
    if HUB_ID.fullmatch(model) and not folder.exists():
        return model
    raise UsageError(f"model {model!r}: neither nano, nor a folder, nor a Hugging Face id (owner/name)")


def local_model(model: str, task: str, *, revision: str = "", digest: str = "") -> str:
    """A model's folder on this machine; a hub model is fetched where it is not in the cache, at `revision`.

    Raises UsageError where its weights are not those of `digest` ("" = any).
    """
    path = resolve_model(model, task)
    if not Path(path).is_dir():
        from llmzero.trainers.hub import fetch

        path = str(fetch(path, revision))
    damage = verify(Path(path), digest) if digest else ""
    if damage:
        raise UsageError(f"model {model}: {damage}; give the right one, or another on purpose, with --model")
    return path


def base_weights(config: RunConfig) -> Weights:
    """The base model of a run on this machine, with the digest it had when the run began."""
    known = config.versions
    if config.trainer == "sim":  # loads no weights
        path = resolve_model(config.model, config.task)
    else:
        path = local_model(config.model, config.task, revision=known.get("base_revision", ""))
    return Weights(path=path, digest=known.get("base_sha256", ""))


def model_shape(config: RunConfig) -> dict[str, int | None]:
    """Parameters and vocabulary of a run's model, nothing of any size read or fetched; None where unknown."""
    path = resolve_model(config.model, config.task)
    if Path(path).is_dir():
        from llmzero.plan import folder_shape

        return folder_shape(Path(path))
    from llmzero.trainers.hub import shape

    parameters, vocabulary = shape(path)
    return {"parameters": parameters, "vocabulary": vocabulary}


def versions(config: RunConfig) -> dict[str, str]:
    """What a result depends on: package versions, the base model's digest and, from the hub, its commit."""
    packages = ("llmzero", "torch", "transformers", "trl", "datasets", "accelerate", "rdkit")
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    base = Path(base_weights(config).path)
    if not base.is_dir():
        return found
    found["base_sha256"] = weights_digest(base)
    hub = not Path(config.model).is_dir() and HUB_ID.fullmatch(config.model)
    return {**found, "base_revision": base.name} if hub else found
