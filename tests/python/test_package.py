"""What every package must have: quick to import, typed, documented."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ferry

HERE = Path(__file__).resolve().parent


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_takes_no_framework() -> None:
    code = "import sys, ferry; print(sorted({'numpy', 'torch', 'argparse'} & set(sys.modules)))"
    assert python("-S", "-c", f"import sys; sys.path += {sys.path!r}; {code}").stdout == "[]\n"


def test_importing_is_quick() -> None:
    # Time of the processor, as other tests may run at the same time.
    code = "import time; t = time.process_time(); import ferry; print(time.process_time() - t)"
    assert min(float(python("-c", code).stdout) for _ in range(5)) < 0.05


def public() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name in ferry.__all__:
        value = getattr(ferry, name)
        if not isinstance(value, str):
            found.append((name, value))
        if inspect.isclass(value):
            found += [
                (f"{name}.{each}", member)
                for each, member in vars(value).items()
                if not each.startswith("_") and (callable(member) or isinstance(member, property))
            ]
    return found


@pytest.mark.parametrize(("name", "value"), public(), ids=[name for name, _ in public()])
def test_every_public_name_is_documented(name: str, value: object) -> None:
    assert inspect.getdoc(value), f"{name} has no docstring"


def test_all_is_complete_and_sorted() -> None:
    assert ferry.__all__ == sorted(ferry.__all__)
    assert all(hasattr(ferry, name) for name in ferry.__all__)


@pytest.mark.parametrize("what", ["package", "script"])
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=lambda each: each[0])
def test_types(checker: list[str], what: str, tmp_path: Path) -> None:
    pytest.importorskip(checker[0])
    package = Path(ferry.__file__).parent
    if not (package / "_ferry.pyi").exists():
        pytest.skip("a build without stubs")
    settings = {
        "typeCheckingMode": "strict" if what == "script" else "standard",
        "reportMissingImports": False,  # of frameworks
        "extraPaths": [str(package.parent)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\n[mypy-torch.*,numpy.*,ml_dtypes.*]\nignore_missing_imports = True\n"
        "follow_imports = skip\n"
    )
    if what == "script":
        checked = Path(shutil.copy(HERE / "typed_script.py", tmp_path))
    else:
        checked = Path(shutil.copytree(package, tmp_path / "ferry", ignore=shutil.ignore_patterns("*.so")))
    environment = dict(os.environ)
    if what == "package":
        environment["MYPYPATH"] = str(tmp_path)
    elif package.parent.name != "site-packages":  # where mypy looks by itself
        environment["MYPYPATH"] = str(package.parent)
    result = subprocess.run(
        [sys.executable, "-m", *checker, str(checked)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_typed_script_runs(tmp_path: Path) -> None:
    result = python(str(HERE / "typed_script.py"), str(HERE.parent / "fixtures/megatron/hot_llama"), str(tmp_path))
    assert result.returncode == 0, result.stderr
