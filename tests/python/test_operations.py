"""Each operation once, what it returns, and that it can be watched and stopped."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

import ferry

from conftest import files_below


def test_convert_and_back(run: Path, tmp_path: Path) -> None:
    report = ferry.convert(run, tmp_path / "hf", memory="64MiB", threads=1)
    assert report.family == "llama"
    assert report.source_format == "torch_dist"
    assert report.iteration == 5
    assert report.written.bytes == sum(bytes for _, bytes in report.written.files)
    assert (tmp_path / "hf/config.json").is_file()
    back = ferry.convert(tmp_path / "hf", tmp_path / "new", to="torch_dist", tensor=2)
    assert back.layout.tensor == 2
    assert f"--load {tmp_path / 'new'}" in back.load_with
    ferry.convert(tmp_path / "new", tmp_path / "again")
    assert ferry.diff(tmp_path / "hf", tmp_path / "again").equal


def test_a_dry_run_writes_nothing(run: Path, tmp_path: Path) -> None:
    report = ferry.convert(run, tmp_path / "hf", dry_run=True)
    assert report.written.dry_run
    assert report.tensors > 0
    assert not (tmp_path / "hf").exists()


def test_only_and_renames(run: Path, tmp_path: Path) -> None:
    ferry.reshard(
        run,
        tmp_path / "out",
        to="dcp",
        optimizer="none",
        only="decoder.final*",
        renames={"decoder.final*": "last*"},
    )
    names = [tensor.name for tensor in ferry.inspect(tmp_path / "out", tensors="*").tensors]
    assert names == ["last_layernorm.weight"]


def test_reshard(trained_run: Path, tmp_path: Path) -> None:
    report = ferry.reshard(trained_run, tmp_path / "new", pipeline=2, tensor=1, sha256=True)
    assert report.target.layout.pipeline == 2
    assert report.source.optimizer == "dp_reshardable"
    assert report.target.optimizer == "fully_reshardable"
    again = ferry.verify(tmp_path / "new")
    assert again
    assert again.sha256s > 0
    assert ferry.diff(trained_run, tmp_path / "new").equal


def test_verify_names_the_damage(run: Path) -> None:
    ferry.seal(run)
    data = max(run.glob("iter_*/*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    report = ferry.verify(run)
    assert not report
    assert {problem.file for problem in report.problems} == {data.name}
    assert all(problem.bytes > 0 for problem in report.problems)


def test_check_says_what_is_wrong(run: Path, tmp_path: Path) -> None:
    model = tmp_path / "hf"
    ferry.convert(run, model)
    report = ferry.check(model, loader="transformers")
    assert report and report.family == "llama" and report.loader == "transformers"
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 40}))
    report = ferry.check(model, like=model)
    assert not report
    assert {finding.kind for finding in report.findings if finding.is_problem} == {"missing"}
    assert all(finding.advice for finding in report.findings)
    assert report.to_dict()["problems"] == report.problems > 0
    with pytest.raises(ferry.Invalid):
        ferry.check(run)


def test_verify_all_iterations(run: Path) -> None:
    report = ferry.verify(run, run=True)
    assert report
    assert [each.iteration for each in report.iterations] == [5]
    assert report.problem_count == 0
    with pytest.raises(ferry.Invalid, match="not a run folder"):
        ferry.verify(run / "iter_0000005", run=True)
    with pytest.raises(ValueError, match="run=True"):
        ferry.verify(run, run=True, iteration=5)  # type: ignore[call-overload]


def test_seal(run: Path) -> None:
    assert not ferry.seal(run, dry_run=True).renewed
    report = ferry.seal(run)
    assert report.files > 0
    assert ferry.verify(run).has_manifest
    assert ferry.seal(run).renewed


def test_diff_shows_values(fixtures: Path, tmp_path: Path) -> None:
    run = fixtures / "megatron/f32_qwen3"
    ferry.convert(run, tmp_path / "a", to="safetensors")
    ferry.convert(run, tmp_path / "b", to="safetensors", dtype="bf16")
    report = ferry.diff(tmp_path / "a", tmp_path / "b", ignore_dtype=True, order="difference")
    assert not report.equal
    worst = report.tensors[0]
    assert worst.status == "values"
    assert worst.values.max_absolute > 0
    assert isinstance(worst.values.first_a, float)
    assert ferry.diff(
        tmp_path / "a", tmp_path / "b", ignore_dtype=True, relative_tolerance=0.01
    ).equal


def test_prune(run: Path) -> None:
    report = ferry.prune(run, keep_last=1, dry_run=True)
    assert [item.goes for item in report.iterations] == [False]
    with pytest.raises(ferry.Invalid, match="keep_last"):
        ferry.prune(run)


def test_inspect(trained_run: Path) -> None:
    report = ferry.inspect(trained_run, tensors="*norm*", stats="*final*", objects=True)
    assert report.format == "torch_dist"
    assert report.model.family == "llama"
    assert report.layout.tensor == 2
    assert report.args.tensor_model_parallel_size == 2
    assert all("norm" in tensor.name for tensor in report.tensors)
    assert report.statistics[0].finite > 0
    assert "args" not in report.objects or report.objects["args"] is not None
    assert report.optimizer_tensors.tensors > 0


def test_estimate(run: Path, tmp_path: Path) -> None:
    ferry.convert(run, tmp_path / "hf")
    report = ferry.estimate(tmp_path / "hf", arguments=["--micro-batch-size", "1"], gpus=2)
    assert report.parameters.total > 0
    assert report.stages
    assert ferry.estimate(tmp_path / "hf", gpus=8, gpu_memory="80GB").layouts is not None


def test_results_are_data(run: Path) -> None:
    report = ferry.verify(run)
    again = ferry.verify(run)
    assert report.problems == again.problems
    assert report != again  # of seconds
    assert report.to_dict()["path"] == report.path
    assert json.loads(json.dumps(report.to_dict()))["files"] == report.files
    assert repr(report).startswith("VerifyReport(path=")
    with pytest.raises(AttributeError):
        report.path = "x"  # type: ignore[misc]
    for each in (ferry.inspect(run, objects=True), ferry.diff(run, run)):
        json.dumps(each.to_dict())


def test_progress_is_called(run: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    ferry.convert(run, tmp_path / "hf", progress=lambda done, total: seen.append((done, total)))
    assert seen
    done, total = seen[-1]
    assert done == total > 0


def test_progress_true_shows_a_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ferry.convert(run, tmp_path / "hf", progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "converting: 100%|" in shown.err
    assert shown.err.endswith("\n")


def test_an_exception_of_progress_ends_the_operation(run: Path, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def progress(done: int, total: int) -> None:
        raise Enough(done)

    before = files_below(run)
    with pytest.raises(Enough):
        ferry.seal(run, progress=progress)
    after = files_below(run)
    after.pop("iter_0000005/ferry.manifest.json", None)  # it may have been done by then
    assert before == after


def test_other_threads_run_meanwhile(run: Path, tmp_path: Path) -> None:
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    counting = threading.Thread(target=count)
    counting.start()
    try:
        for i in range(3):
            ferry.convert(run, tmp_path / f"hf{i}")
    finally:
        stop.set()
        counting.join()
        sys.setswitchinterval(interval)
    assert turns > 1000


def test_operations_of_several_threads(run: Path, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                ferry.convert(run, tmp_path / f"{number}-{turn}")
                assert ferry.verify(tmp_path / f"{number}-{turn}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
