"""GPUs among workers: each process its own, freed however the process ends. No GPU is needed to prove it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmzero.domain.errors import PhaseError
from llmzero.trainers.trl import devices

CLAIM = """
import sys, time
from pathlib import Path
from llmzero.trainers.trl.devices import claim
print(claim(["0", "1", "GPU-7/2"], Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def claimant(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen([sys.executable, "-c", CLAIM, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_workers_get_different_gpus_and_a_dead_ones_is_free_again(tmp_path: Path) -> None:
    workers = [claimant(tmp_path) for _ in range(4)]
    try:
        assert [name for _, name in workers] == ["0", "1", "GPU-7/2", "GPU-7/2"], "the fourth must share"
        workers[1][0].kill()
        workers[1][0].wait()
        time.sleep(0.05)
        workers.append(claimant(tmp_path))
        assert workers[-1][1] == "1"
    finally:
        for process, _ in workers:
            process.kill()
            process.communicate()


def test_a_worker_on_a_machine_with_several_gpus_sees_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    devices.use_one_gpu()
    assert devices.os.environ["CUDA_VISIBLE_DEVICES"] == "4"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(PhaseError, match="set CUDA_VISIBLE_DEVICES"):
        devices.use_one_gpu()
