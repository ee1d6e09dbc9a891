#!/bin/sh
# test.sh: everything that is tested, from a bare Debian 12, Debian 13 or Ubuntu 24.04 on: packages,
# build, direction of dependence, ctest, the same under AddressSanitizer and
# UndefinedBehaviorSanitizer, and the checks against the peers' own Python programs.
#
#   FERRY_TEST_SANITIZERS=0   without the sanitizer build
#   FERRY_TEST_INTEROP=0|1    without or with the Python programs, which download some gigabytes once;
#                             by default they run where CI is set
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # lists of words
install_missing $build_packages $test_packages

jobs=$(nproc)

# build_and_test PRESET CTEST_ARGUMENT...
build_and_test() {
    preset=$1
    shift
    echo "== $preset: configure and build"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs"
    echo "== $preset: ctest"
    ctest --preset "$preset" -j "$jobs" "$@" >"build/$preset/ctest.log" 2>&1 || {
        grep -v 'Passed\|Start' "build/$preset/ctest.log"
        exit 1
    }
    sed -n '/tests passed/,$p' "build/$preset/ctest.log"
}

echo "== direction of dependence"
tools/check_dependence.sh
build_and_test release
if [ "${FERRY_TEST_SANITIZERS:-1}" != 0 ]; then
    build_and_test asan -LE install
fi
if [ "${FERRY_TEST_INTEROP:-${CI:+1}}" = 1 ]; then
    install_missing python3 python3-venv
    echo "== against the peers' Python programs"
    tests/interop/run.sh build/release/bin/ferry
else
    echo "== without the peers' Python programs; FERRY_TEST_INTEROP=1 runs them"
fi
echo "== all passed"
sed -n '/tests passed/p' build/release/ctest.log
