"""What third parties print and raise, made quiet and named."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from llmzero.domain.errors import PhaseError

_NAN_SIGNS = ("probability tensor contains", "device-side assert", "non-finite")
_MEMORY_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, no info lines, no warnings of TRL, transformers and datasets; as before afterwards."""
    import datasets
    import transformers.utils.logging as chatter

    loud = chatter.get_verbosity(), logging.getLogger("trl").level, chatter.is_progress_bar_enabled()
    bars = datasets.are_progress_bars_disabled()
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("trl").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        chatter.set_verbosity(loud[0])
        logging.getLogger("trl").setLevel(loud[1])
        if loud[2]:
            chatter.enable_progress_bar()
        if not bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Running out of memory or disk and sampling from NaN logits become PhaseErrors; other errors pass."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        if "No space left" in str(error):
            raise PhaseError("disk_full", f"disk full while writing the checkpoint: {error}") from error
        raise
    except MemoryError:
        raise PhaseError("out_of_memory", _MEMORY_ADVICE) from None
    except RuntimeError as error:
        text = str(error)
        if any(sign in text for sign in _MEMORY_SIGNS):
            raise PhaseError("out_of_memory", _MEMORY_ADVICE) from error
        if any(sign in text for sign in _NAN_SIGNS):
            raise PhaseError(
                "nan", "logits are NaN or infinite while sampling: lower learning_rate, or check the start weights"
            ) from error
        raise


_MEMORY_ADVICE = (
    "out of memory: lower max_completion_tokens or extra.per_device_train_batch_size, or set kl_coef 0 (no reference)"
)
