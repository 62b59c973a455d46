"""The preload module is safe to import in a fork server."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import os, sys, threading
import numpy, pyarrow  # these start threads of their own, fork-safe ones
before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
import llmzero.trainers.preload
import torch, gc
after = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
print(threading.active_count(), after - before, torch.cuda.is_initialized(), gc.get_freeze_count() > 100_000)
print("trl.trainer.grpo_trainer" in sys.modules and "transformers.models.qwen3.modeling_qwen3" in sys.modules)
child = os.fork()
if child == 0:
    torch.set_num_threads(2)
    a = torch.ones(600, 600)
    os._exit(0 if (a @ a).sum().item() == 600.0**3 else 1)
print(os.waitpid(child, 0)[1])
"""


def test_it_loads_everything_and_starts_nothing_a_fork_would_break() -> None:
    ended = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["1", "0", "False", "True", "True", "0"]
