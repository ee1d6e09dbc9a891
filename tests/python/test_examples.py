"""The scripts of examples/python, as a user would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run_script(name, *arguments, launcher=(), status=0):
    command = [sys.executable, *launcher, str(EXAMPLES / name), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == status, ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_they_are_short(script):
    assert len((EXAMPLES / script).read_text().splitlines()) < 40


@pytest.mark.parametrize("run", ["hot_llama", "qwen2_pp2", "f32_qwen3moe"])
def test_weights_of_megatron_in_transformers(fixtures, tmp_path, run):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import ferry

    said = run_script("weights_into_transformers.py", fixtures / "megatron" / run, 5, 9, 2)
    ferry.convert(fixtures / "megatron" / run, tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float32
    ).eval()
    with torch.inference_mode():
        expected = model.generate(torch.tensor([[5, 9, 2]]), max_new_tokens=8, do_sample=False)
    assert said.splitlines()[-1] == str(expected[0].tolist())


def test_a_training_that_resumes_at_another_number_of_ranks(tmp_path):
    pytest.importorskip("torch")

    def train(folder, ranks, steps):
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
        said = run_script("train_and_resume.py", folder, steps, launcher=launcher)
        # Ranks print at the same time: a line may end after the next one's text.
        return sorted(re.findall(r"rank \d+: iterations \d+ to \d+, loss \d+\.\d{6}", said))

    train(tmp_path / "run", 3, 5)
    parted = train(tmp_path / "run", 2, 5)
    straight = train(tmp_path / "straight", 1, 10)
    assert len(parted) == 2 and "iterations 6 to 10" in parted[0]
    loss = [float(lines[0].rpartition(" ")[2]) for lines in (parted, straight)]
    assert loss[0] == pytest.approx(loss[1], abs=1e-5)


def test_a_check_of_all(fixtures, run, tmp_path):
    import shutil

    shutil.copytree(fixtures / "megatron" / "qwen2_pp2", tmp_path / "more" / "qwen2")
    said = run_script("check_all.py", tmp_path)
    rows = said.splitlines()
    assert len(rows) == 2 and all(row.endswith("sound") for row in rows)
    assert "llama" in said and "qwen2" in said
    damaged = next(run.rglob("*.distcp"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert "sound" in run_script("check_all.py", tmp_path, status=1)
