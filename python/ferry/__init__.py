"""Model checkpoints of Megatron-LM, PyTorch and Hugging Face: read, converted, checked and saved."""

from ferry._ferry import __version__
from ferry.errors import (
    Busy,
    Corrupt,
    Error,
    Exhausted,
    Invalid,
    IOFailed,
    Mismatch,
    NotFound,
    Unsupported,
)
from ferry.operations import (
    convert,
    diff,
    estimate,
    inspect,
    prune,
    reshard,
    seal,
    verify,
)

__all__ = [
    "Busy",
    "Corrupt",
    "Error",
    "Exhausted",
    "IOFailed",
    "Invalid",
    "Mismatch",
    "NotFound",
    "Unsupported",
    "__version__",
    "convert",
    "diff",
    "estimate",
    "inspect",
    "prune",
    "reshard",
    "seal",
    "verify",
]
