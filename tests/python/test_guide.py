"""The code of the guides runs as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import ferry

ROOT = Path(__file__).resolve().parent.parent.parent


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_blocks_run_one_after_the_other(
    page: str, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    shutil.copytree(fixtures / "megatron/llama_tp2dp2_dpr", "runs/llama")
    names: dict[str, object] = {}
    assert blocks(page)
    for number, code in enumerate(blocks(page)):
        exec(compile("import ferry\n" + code, f"{page}, block {number}", "exec"), names)


def test_one_line_tasks_run(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    shutil.copytree(fixtures / "megatron/llama_tp2dp2_dpr", "runs/llama")
    lines = re.findall(r"^\| [a-z].*\| `(ferry\..*?)` \|$", (ROOT / "docs/python.md").read_text(), re.M)
    assert len(lines) >= 10
    for line in lines:
        if "safe_open" in line:
            shutil.copy("llama-hf/model.safetensors", "model.safetensors")
        eval(line, {"ferry": ferry})
