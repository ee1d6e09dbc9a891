"""Checkpoints to test with, and what several tests need."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

# A shell starts what runs in its background deaf to Ctrl-C, and so would be all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fixtures() -> Path:
    """tests/fixtures; read-only."""
    return FIXTURES


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of Megatron-LM (torch_dist, llama), which may be changed."""
    return Path(shutil.copytree(FIXTURES / "megatron/hot_llama", tmp_path / "run"))


@pytest.fixture
def trained_run() -> Path:
    """A run with Adam's state, of 2 tensor and 2 data ranks; read-only."""
    return FIXTURES / "megatron/llama_tp2dp2_dpr"


def files_below(folder: Path) -> dict[str, bytes]:
    """What a folder holds, to compare it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
