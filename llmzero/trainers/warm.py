"""Imported once by the fork server, after the libraries: builds the run's task, so that no phase builds it again.

The task is named by the environment variable `LLMZERO_WARM_TASK`, a JSON object of `wiring.make_task`'s arguments.
A task that cannot be built is left to the worker, which says so in its result.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os

from llmzero import wiring
from llmzero.domain.errors import LLMZeroError
from llmzero.domain.examples import SPLITS

VARIABLE = "LLMZERO_WARM_TASK"

if VARIABLE in os.environ:
    with contextlib.suppress(LLMZeroError, OSError, ValueError, RuntimeError, ImportError):
        _task = wiring.make_task(**json.loads(os.environ[VARIABLE]))
        for _split in SPLITS:
            _task.examples(_split)
    gc.freeze()
