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
from ferry.saving import AsyncSaver, SaveReport, SaverStatus, Shard, Ticket, save

__all__ = [
    "AsyncSaver",
    "Busy",
    "Corrupt",
    "Error",
    "Exhausted",
    "IOFailed",
    "Invalid",
    "Mismatch",
    "NotFound",
    "SaveReport",
    "SaverStatus",
    "Shard",
    "Ticket",
    "Unsupported",
    "__version__",
    "save",
]
