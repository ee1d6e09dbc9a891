#!/bin/sh
# test.sh: everything that is tested, from a bare Debian 12, Debian 13 or Ubuntu 24.04 on: packages,
# build, direction of dependence, ctest, the same under AddressSanitizer and
# UndefinedBehaviorSanitizer, and the checks against the peers' own Python programs.
#
#   FERRY_TEST_SANITIZERS=0     without the sanitizer build; =all: all tests in it, not only those of
#                               what reads files, and with every bit flip and the random layouts
#                               (many times the time)
#   FERRY_TEST_INTEROP=0|1      without or with the Python programs, which download some gigabytes
#                               once; by default they run where CI is set
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # lists of words
install_missing $build_packages $test_packages

jobs=$(nproc)

# build PRESET [TARGET...]
build() {
    preset=$1
    shift
    echo "== $preset: configure and build"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}

# run_tests PRESET [CTEST_ARGUMENT...]: prints what fails and ctest's summary
run_tests() {
    preset=$1
    shift
    echo "== $preset: ctest"
    ctest --preset "$preset" -j "$jobs" "$@" >"build/$preset/ctest.log" 2>&1 || {
        grep -Ev '(Passed|Start) ' "build/$preset/ctest.log"
        exit 1
    }
    sed -n '/tests passed/,$p' "build/$preset/ctest.log"
}

echo "== direction of dependence"
tools/check_dependence.sh
build release
run_tests release
case ${FERRY_TEST_SANITIZERS:-1} in
0) ;;
all)
    build asan
    run_tests asan -E '^install'
    ;;
*)
    fuzz_targets=$(ls tests/fuzz/fuzz_*.cpp | sed 's|.*/||; s|\.cpp$||' | grep -v config)
    # shellcheck disable=SC2086 # a list of words
    build asan base_test core_test io_test engine_test group_test format_test store_test megatron_test integrity_test memory_test $fuzz_targets
    run_tests asan -R '^(base|core|io|engine|group|format|store|megatron|integrity|memory|fuzz)\.' -E '^(fuzz\.config|integrity\.Flips|megatron\.(FlatBuckets|RankFolders|ReshardProperty))'
    ;;
esac
if [ "${FERRY_TEST_INTEROP:-${CI:+1}}" = 1 ]; then
    install_missing python3 python3-venv
    echo "== against the peers' Python programs"
    tests/interop/run.sh build/release/bin/ferry
else
    echo "== without the peers' Python programs; FERRY_TEST_INTEROP=1 runs them"
fi
echo "== all passed"
sed -n '/tests passed/p' build/release/ctest.log
