from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import ferry


def test_kinds_are_classes_and_what_python_users_catch() -> None:
    assert issubclass(ferry.NotFound, KeyError)
    assert issubclass(ferry.Invalid, ValueError)
    assert issubclass(ferry.IOFailed, OSError)
    for each in (ferry.Corrupt, ferry.Unsupported, ferry.Mismatch, ferry.Exhausted, ferry.Busy):
        assert issubclass(each, ferry.Error)


def test_a_missing_path_is_named() -> None:
    with pytest.raises(ferry.NotFound) as raised:
        ferry.verify("/nowhere/run")
    assert raised.value.kind == "not_found"
    assert raised.value.path == "/nowhere/run"
    assert "'" not in str(raised.value)[:1]  # no KeyError's quotes


def test_a_damaged_file_is_named(run: Path) -> None:
    metadata = next(run.glob("iter_*/.metadata"))
    metadata.write_bytes(metadata.read_bytes()[:100])
    with pytest.raises(ferry.Corrupt) as raised:
        ferry.convert(run, run.parent / "out")
    assert raised.value.path == str(metadata)
    assert raised.value.kind == "corrupt"


def test_the_hint_says_what_to_do(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(ferry.Invalid) as raised:
        ferry.convert(run, target)
    assert raised.value.path == str(target)
    assert raised.value.hint is not None
    assert "overwrite=True" in raised.value.hint
    assert str(raised.value).endswith(raised.value.hint)


def test_messages_have_keywords_of_python(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ferry.Invalid, match="quantize cannot be used with to='torch_dist'"):
        ferry.convert(run, tmp_path / "out", to="torch_dist", quantize="fp8")
    with pytest.raises(ferry.Invalid, match="memory='lots' is not a size"):
        ferry.convert(run, tmp_path / "out", memory="lots")
    with pytest.raises(ferry.Invalid, match="to='nonsense' is none of its values; use 'hf'"):
        ferry.convert(run, tmp_path / "out", to="nonsense")  # type: ignore[arg-type]


def test_wrong_types_are_type_errors(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="dry_run: expected bool, not int"):
        ferry.convert(run, tmp_path / "out", dry_run=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tensor: expected int"):
        ferry.reshard(run, tmp_path / "out", tensor="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path: expected str or os.PathLike, not int"):
        ferry.verify(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress"):
        ferry.verify(run, progress=3)  # type: ignore[arg-type]


def test_errors_survive_pickling() -> None:
    error = ferry.NotFound("runs/a: is empty; copy it again", "runs/a", "copy it again")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ferry.NotFound
    assert (str(again), again.path, again.hint) == (str(error), "runs/a", "copy it again")


def test_names_that_are_not_utf8_keep_their_bytes(tmp_path: Path) -> None:
    missing = tmp_path / "run\udcff"
    with pytest.raises(ferry.NotFound) as raised:
        ferry.verify(missing)
    assert raised.value.path == str(missing)


def test_messages_of_streams_name_their_keywords(fixtures: Path) -> None:
    with ferry.open(fixtures / "megatron/llama_tp2dp2_dpr") as run:
        with pytest.raises(ferry.Invalid, match="rank=3 is none of world=2"):
            run.stream(rank=3, world=2)
        with pytest.raises(ferry.Exhausted, match="memory=1024"):
            run.stream(memory="1KiB")
