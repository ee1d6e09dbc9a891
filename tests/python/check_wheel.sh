#!/bin/sh
# check_wheel.sh FOLDER: whether the wheels in FOLDER (tools/wheels.sh) are what they should be: their names,
# contents and what they need of a machine, auditwheel, abi3audit and twine; and whether they work in fresh
# environments of every Python that is here (in PATH, or as pyenv has them), without NumPy and with it. With
# FERRY_TORCH_PYTHON, an interpreter that has PyTorch, also with that.
# What cannot be had here (PyPI, a Python) is reported as skipped.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
wheels=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
passed=0
skipped=0
complain() {
    echo "wrong: $*" >&2
    wrong=$((wrong + 1))
}
# check WHAT COMMAND...
check() {
    what=$1
    shift
    if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); else complain "$what: $(tail -5 "$work/log")"; fi
}
skip() {
    echo "skipped: $*"
    skipped=$((skipped + 1))
}

# needs_only_libc FILE
needs_only_libc() {
    for library in $(objdump -p "$1" | sed -n 's/^ *NEEDED *//p'); do
        case $library in
        libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux-x86-64.so.2) ;;
        *) echo "needs $library" && return 1 ;;
        esac
    done
    newest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -1)" = GLIBC_2.28 ] || { echo "needs $newest" && return 1; }
    ! objdump -p "$1" | grep -E 'RPATH|RUNPATH'
}

# exports_only NAME FILE
exports_only() {
    [ "$(objdump -T "$2" | awk '$2 ~ /[gw]/ && $0 !~ /\*UND\*/ { print $NF }')" = "$1" ]
}

# contents FOLDER: of an unpacked wheel
contents() {
    module=$(ls "$1"/ferry/_ferry.*.so)
    program=$(ls "$1"/*.data/scripts/ferry)
    check "$module" needs_only_libc "$module"
    check "$program" needs_only_libc "$program"
    check "$module exports" exports_only PyInit__ferry "$module"
    for file in ferry/__init__.py ferry/py.typed ./*.data/data/share/man/man1/ferry.1 ./*.dist-info/licenses/LICENSE \
        ./*.dist-info/licenses/libraries/libzstd-dev.copyright; do
        check "the wheel has $file" test -e "$1"/$file
    done
    find "$1" -type f | sed "s|^$1/||" |
        grep -vE '^(ferry/([a-z_]+/)?[a-z_]+\.pyi?|ferry/py\.typed|ferry/_ferry\.[^/]*\.so|ferry_checkpoint-[^/]*\.(data/(scripts/ferry|data/share/(man|bash-completion|zsh|fish)/.*)|dist-info/.*))$' \
            >"$work/others" || true
    [ ! -s "$work/others" ] || complain "the wheel has, besides, $(tr '\n' ' ' <"$work/others")"
    grep -rlF -e "$here" -e "${HOME:-/nowhere}/" "$1" >"$work/paths" || true
    [ ! -s "$work/paths" ] || complain "a path of this machine stands in $(tr '\n' ' ' <"$work/paths")"
}

# works PYTHON: in an environment that has the wheel
works() {
    "$1" - <<'END'
import sys
import ferry
assert not {"numpy", "torch"} & set(sys.modules), "import ferry imports NumPy or PyTorch"
assert ferry.__version__
END
    bin=$(dirname "$1")
    [ "$("$bin/ferry" --version)" = "ferry $("$1" -c 'import ferry; print(ferry.__version__)')" ] &&
        [ "$("$1" -m ferry --version)" = "$("$bin/ferry" --version)" ] &&
        "$bin/ferry" inspect "$here/tests/fixtures/megatron/qwen3moe_te_ep2pp2_dpr" | grep -q qwen3_moe
}

# import_time PYTHON: milliseconds of the processor that `import ferry` takes, the best of ten; other programs may run
import_time() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$1" -c 'import time; begin = time.process_time(); import ferry; print(round((time.process_time() - begin) * 1000, 1))'
    done | sort -n | head -1
}

# pythons: every interpreter from 3.10 on, one each version
pythons() {
    for version in 3.10 3.11 3.12 3.13 3.14; do
        for python in "$(command -v "python$version")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
            if [ -x "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null; then
                echo "$python"
                break
            fi
        done
    done
}

for wheel in "$wheels"/ferry_checkpoint-*.whl; do
    name=$(basename "$wheel")
    echo "$name: $(($(stat -c %s "$wheel") / 1024)) KiB"
    case $name in
    ferry_checkpoint-*-cp312-abi3-manylinux_2_28_x86_64.whl | ferry_checkpoint-*-cp31[01]-cp31[01]-manylinux_2_28_x86_64.whl) ;;
    *) complain "the name of $name" ;;
    esac
    rm -rf "$work/wheel"
    python3 -m zipfile -e "$wheel" "$work/wheel"
    contents "$work/wheel"
done

python3 -m venv "$work/audit"
if "$work/audit/bin/pip" -q --disable-pip-version-check install auditwheel abi3audit twine >"$work/log" 2>&1; then
    for wheel in "$wheels"/ferry_checkpoint-*.whl; do
        "$work/audit/bin/auditwheel" show "$wheel" >"$work/show" 2>&1 || true
        check "auditwheel: $(tail -5 "$work/show")" grep -qE 'consistent with( *|.*)"?manylinux_2_(17|2[0-8])_x86_64' "$work/show"
        case $wheel in *abi3*) check "abi3audit $wheel" "$work/audit/bin/abi3audit" --strict "$wheel" ;; esac
    done
    check twine "$work/audit/bin/twine" check --strict "$wheels"/ferry_checkpoint-*.whl
else
    skip "auditwheel, abi3audit and twine: no PyPI"
fi

for python in $(pythons); do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    rm -rf "$work/fresh"
    "$python" -m venv "$work/fresh"
    bin=$work/fresh/bin
    if ! "$bin/pip" -q --disable-pip-version-check install --no-index --find-links "$wheels" ferry-checkpoint >"$work/log" 2>&1; then
        if grep -q 'No matching distribution' "$work/log"; then skip "Python $version: no wheel for it was made"; else complain "Python $version: $(cat "$work/log")"; fi
        continue
    fi
    check "Python $version" works "$bin/python"
    milliseconds=$(import_time "$bin/python")
    echo "Python $version: import ferry takes $milliseconds ms"
    check "Python $version: import ferry takes $milliseconds ms" test "${milliseconds%.*}" -lt 50
    if "$bin/pip" -q --disable-pip-version-check install --only-binary :all: numpy >"$work/log" 2>&1; then
        check "Python $version with NumPy" works "$bin/python"
        check "Python $version with NumPy" "$bin/python" -c 'import numpy, ferry'
    else
        skip "Python $version with NumPy: no PyPI"
    fi
done
if [ -n "${FERRY_TORCH_PYTHON:-}" ]; then
    rm -rf "$work/fresh"
    "$FERRY_TORCH_PYTHON" -m venv "$work/fresh"
    packages='import sysconfig; print(sysconfig.get_path("purelib"))'
    echo "import site; site.addsitedir('$("$FERRY_TORCH_PYTHON" -c "$packages")')" >"$("$work/fresh/bin/python" -c "$packages")/torch.pth"
    check "the wheel next to PyTorch" "$work/fresh/bin/pip" -q install --no-index --no-deps --find-links "$wheels" ferry-checkpoint
    check "with PyTorch" works "$work/fresh/bin/python"
    check "with PyTorch" "$work/fresh/bin/python" -c 'import torch, ferry'
    check "with PyTorch" "$work/fresh/bin/python" -c 'import ferry, torch'
else
    skip "with PyTorch: FERRY_TORCH_PYTHON is not set"
fi
echo "wheels: $passed passed, $wrong failed, $skipped skipped"
[ "$wrong" = 0 ]
