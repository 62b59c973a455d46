"""Weights on disk: are they the ones that were written, and which of them nobody will need again."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path

from llmzero.domain.errors import StateError
from llmzero.domain.events import Tree
from llmzero.domain.types import Status
from llmzero.store.atomic import TEMPORARY, disk_error
from llmzero.store.layout import JobPaths, RunPaths

MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""What a model is loaded from; a README or a training log beside it makes no difference."""


def weights_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a model's files (weights, configuration, tokenizer), or of all files where
    there are no weights among them.

    Files that did not change since an earlier call in this process are not read again.
    """
    try:
        files = _weight_files(folder)
        if not files:
            raise StateError(f"{folder} holds no weights")
        return _digest(folder, tuple(_stamp(folder, path) for path in files))
    except OSError as error:
        raise disk_error(error, "reading", Path(error.filename or folder)) from error


def verify(folder: Path, digest: str) -> str:
    """Empty when the folder holds the weights of `digest`; otherwise what is wrong, in one line."""
    if not folder.is_dir():
        return f"{folder} is missing"
    try:
        found = weights_digest(folder)
    except StateError as error:
        return str(error)
    return "" if found == digest else f"{folder} changed since it was written (SHA-256 {found[:12]}, not {digest[:12]})"


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not any(path.suffix == ".safetensors" for path in files):
        return files
    return [path for path in files if path.suffix in MODEL_FILES]


def _stamp(folder: Path, path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns


@lru_cache(maxsize=256)
def _digest(folder: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    total = hashlib.sha256()
    for name, size, _ in files:
        total.update(f"{name}\0{size}\0".encode())
        with (folder / name).open("rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def sync_tree(folder: Path) -> None:
    """Make every file under `folder` survive a power cut; to be called before anything points at it."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def collect_garbage(run: RunPaths, tree: Tree) -> int:
    """Remove what nobody will need again; the bytes freed.

    That is the checkpoints of stopped and failed nodes (never resumed from) and files a dead process was writing.
    Running and finished nodes keep everything.
    """
    ended = [node for node in tree.nodes.values() if node.result is not None]
    useless = [node for node in ended if node.status in (Status.STOPPED, Status.FAILED)]
    folders = [JobPaths(run.phase_dir(node.id)).checkpoint for node in useless]
    try:
        freed = sum(_remove(folder) for folder in folders)
        return freed + sum(_remove(file) for node in ended for file in _temporaries(run.phase_dir(node.id)))
    except OSError as error:
        raise disk_error(error, "cleaning", Path(error.filename or run.root)) from error


def _temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f".*{TEMPORARY}") if path.is_file()] if folder.is_dir() else []


def _remove(path: Path) -> int:
    if path.is_symlink() or path.is_file():
        size = path.lstat().st_size
        path.unlink()
        return size
    if not path.is_dir():
        return 0
    size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
    shutil.rmtree(path)
    return size
