"""Imported once by a fork server, so that every phase's process starts with the heavy modules already loaded.

Only imports: it starts no thread, touches no GPU and runs no torch operation, all of which a fork would break.
What is loaded stays for good, so it is frozen: collections in the children (0.2 s each otherwise) skip it, and its
memory pages stay shared.
"""

from __future__ import annotations

import gc
import importlib

MODULES = (
    "torch",
    "datasets",
    "transformers",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.trainer",
    "trl.trainer.grpo_config",
    "trl.trainer.grpo_trainer",
    "llmzero.trainers.trl",
)

for _name in MODULES:
    importlib.import_module(_name)
gc.freeze()
