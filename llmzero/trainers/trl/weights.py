"""Weights on disk: safetensors only, never a pickle, never code from a model folder."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmzero.domain.errors import PhaseError
from llmzero.trainers.hub import HUB_ID, fetch


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer, ready to sample: on its device; `eos_ids` end a completion."""

    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]


def folder_of(path: str) -> Path:
    """The local folder of weights given as a folder or hub id; PhaseError(bad_checkpoint) where there are none."""
    folder = Path(path)
    if not folder.is_dir() and not HUB_ID.fullmatch(path):
        raise PhaseError("bad_checkpoint", f"{path}: no such folder, and not a Hugging Face model id")
    if not folder.is_dir():
        folder = fetch(path)
    if not any(folder.glob("*.safetensors")):
        raise PhaseError("bad_checkpoint", f"{folder}: no *.safetensors file; convert the model to safetensors first")
    return folder


def size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """What a damaged folder raises, as one PhaseError(bad_checkpoint)."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise PhaseError("bad_checkpoint", f"{folder}: {str(error).strip().partition(chr(10))[0]}") from error


def load_model(folder: Path) -> Any:
    """The causal LM of a folder, in float32, on the CPU. Refuses a folder that lacks some of the model's tensors:
    transformers would fill them with random numbers."""
    import torch
    from transformers import AutoModelForCausalLM

    with reading(folder):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    model, found = loaded
    missing = sorted(found["missing_keys"])
    if missing:
        raise PhaseError("bad_checkpoint", f"{folder}: {len(missing)} tensors are missing, first {missing[0]}")
    return model


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, padding on the left; the end token pads where there is no pad token."""
    from transformers import AutoTokenizer

    with reading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", trust_remote_code=False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(folder: Path, *, cuda: bool) -> Policy:
    model = load_model(folder).to("cuda" if cuda else "cpu")
    return policy_of(model, load_tokenizer(folder))


def policy_of(model: Any, tokenizer: Any) -> Policy:
    """Every end token the model declares ends a completion, and so does the tokenizer's: TRL's own rule."""
    declared = model.generation_config.eos_token_id
    ids = [] if declared is None else [declared] if isinstance(declared, int) else list(declared)
    return Policy(model, tokenizer, tuple(dict.fromkeys([tokenizer.eos_token_id, *ids])))


def save_policy(policy: Policy, state: Mapping[str, Any] | None, folder: Path) -> None:
    """Write the model (with the tensors of `state`, where given) and tokenizer as a folder anyone can load."""
    if state is not None:
        policy.model.load_state_dict(state)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def copy_of_tensors(model: Any) -> dict[str, Any]:
    """The model's tensors, copied to main memory."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}


def load_into(model: Any, folder: Path) -> None:
    """Replace the model's tensors, in place, by those of a folder."""
    model.load_state_dict(load_model(folder).state_dict())


def differing(model: Any, folder: Path) -> list[str]:
    """Names of the folder's tensors that the model does not hold bit by bit (in the model's own dtype)."""
    import torch

    held = model.state_dict()
    found = [(name, held[name], tensor) for name, tensor in _tensors(folder) if name in held]
    if not found:
        return ["(no tensor in common)"]
    return [name for name, mine, file in found if not torch.equal(mine.detach().cpu(), file.to(mine.dtype))]


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                yield name, opened.get_tensor(name)
