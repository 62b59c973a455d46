"""Seeds are hashed, never counted: the same run seed and names give the same number on every machine."""

from __future__ import annotations

import hashlib


def derive_seed(run_seed: int, *names: str | int) -> int:
    """A seed in [0, 2**31) for the thing called `names` in the run `run_seed`."""
    text = "/".join(str(part) for part in (run_seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**31
