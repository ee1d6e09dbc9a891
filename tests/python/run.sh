#!/bin/sh
# run.sh [PYTEST_ARGUMENT...]: builds the Python module and runs the tests of this folder with it.
#
#   FERRY_WHEELS=...   a folder with a wheel for that Python (tools/wheels.sh), which is tested instead
#   FERRY_PYTHON=...   a Python of 3.10 or later; what it has not of nanobind, pytest, numpy, torch, safetensors, mypy and pyright is
#                      installed into a virtual environment on top of it, in build/; by default that of tests/interop, where it has been
#                      made, else the system's
set -eu
cd "$(dirname "$0")/../.."
base=${FERRY_PYTHON:-python3}
[ -n "${FERRY_PYTHON:-}" ] || [ ! -x build/interop-python/bin/python ] || base=$PWD/build/interop-python/bin/python
environment=build/test-python

skip() {
    echo "skipped: $1"
    exit 0
}

has() { "$environment/bin/python" -c "import $1" 2>/dev/null; }

[ -x "$environment/bin/python" ] || "$base" -m venv "$environment" || skip "no virtual environment can be made (python3-venv)"
# A virtual environment on top of another one sees that one's packages by a line of a .pth file.
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
echo "import site; site.addsitedir('$("$base" -c "$packages")')" >"$("$environment/bin/python" -c "$packages")/base.pth"
for package in nanobind pytest; do
    has "$package" || "$environment/bin/pip" install -q --disable-pip-version-check "$package" || skip "no $package for Python can be had"
done
for package in numpy safetensors mypy pyright xdist; do
    has "$package" || "$environment/bin/pip" install -q --disable-pip-version-check "$(echo "$package" | sed 's/^xdist$/pytest-xdist/')" || echo "without $package"
done
has torch || echo "without torch, whose tests are left out"
if [ -n "${FERRY_WHEELS:-}" ]; then
    "$environment/bin/pip" install -q --disable-pip-version-check --no-index --no-deps --force-reinstall --find-links "$FERRY_WHEELS" ferry-checkpoint
else
    cmake --preset python -D Python_EXECUTABLE="$PWD/$environment/bin/python" >/dev/null
    cmake --build --preset python -j "$(nproc)" --target ferry_python
    export PYTHONPATH=build/python/python
fi
# Many of the tests wait for other processes most of the time.
! has xdist || set -- -n 4 "$@"
"$environment/bin/python" -m pytest -q -p no:cacheprovider tests/python "$@"
