"""One GPU for one phase, also where several workers run side by side on a machine with several."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from llmzero.domain.errors import PhaseError

_held: list[int] = []
"""Open lock files: a claim lasts as long as the process."""


def use_one_gpu() -> bool:
    """Whether there is a GPU; of several, this process from now on sees one that no other phase holds.

    To be called before anything touches a GPU: Trainer would spread one phase over all it sees, which GRPO refuses.
    Set CUDA_VISIBLE_DEVICES to choose the GPUs yourself. Raises PhaseError(bad_config) where they cannot be told apart.
    """
    import torch

    count = torch.cuda.device_count()
    if count > 1:
        if torch.cuda.is_initialized():
            raise PhaseError("bad_config", f"{count} GPUs are in use already: set CUDA_VISIBLE_DEVICES to one of them")
        given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = [name.strip() for name in given.split(",")] if given else [str(index) for index in range(count)]
        os.environ["CUDA_VISIBLE_DEVICES"] = claim(names[:count], Path(tempfile.gettempdir()))
    return torch.cuda.is_available()


def claim(names: Sequence[str], folder: Path) -> str:
    """The first GPU that no process has claimed; they share the last one where all are taken.

    A claim is a lock on a file in `folder`, for this user; the kernel frees it when the process ends, however it ends.
    """
    for name in names:
        path = folder / f"llmzero-{os.getuid()}-gpu-{name.replace('/', '-')}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        _held.append(handle)
        return name
    return names[-1]
