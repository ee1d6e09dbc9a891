#!/bin/sh
# test.sh: everything that is tested, from a bare Debian 12, Debian 13 or Ubuntu 24.04 on: packages,
# build, direction of dependence, ctest; where CI is set, or on request, the same under
# AddressSanitizer and UndefinedBehaviorSanitizer, what runs on several threads under
# ThreadSanitizer, and the checks against the peers' own Python programs.
#
#   FERRY_TEST_SANITIZERS=0|1   without or with the sanitizers' builds, which take longer than the
#                               rest; by default where CI is set, and then fewer tests run under them.
#                               =all: all tests, with as many random cases as without them, and every
#                               bit flip instead of one a byte (many times the time)
#   FERRY_TEST_INTEROP=0|1      without or with the Python programs, which download some gigabytes
#                               once; by default they run where CI is set
#   FERRY_TEST_LAUNCH=0|1       without or with launches under a real Slurm of one node, which is
#                               installed; by default where CI is set
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # lists of words
install_missing $build_packages $test_packages

jobs=$(nproc)
under=

# build PRESET [TARGET...]
build() {
    preset=$1
    shift
    echo "== $preset: configure and build"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}

# run_tests PRESET [CTEST_ARGUMENT...]: prints what fails and ctest's summary; runs under $under
run_tests() {
    preset=$1
    shift
    echo "== $preset: ctest"
    $under ctest --preset "$preset" -j "$jobs" "$@" >"build/$preset/ctest.log" 2>&1 || {
        grep -Ev '(Passed|Start) ' "build/$preset/ctest.log"
        exit 1
    }
    sed -n '/tests passed/,$p' "build/$preset/ctest.log"
}

# under_sanitizers: what reads files and what users call with the one for addresses, what runs on
# several threads with that for threads
under_sanitizers() {
    parts="base core io engine group format store megatron integrity memory convert tools"
    threaded="io engine group store memory ranks"
    threaded_tests="$threaded training"
    fuzz_targets=$(ls tests/fuzz/fuzz_*.cpp | sed 's|.*/||; s|\.cpp$||')
    if [ -n "${CI:-}" ]; then  # which has the peers' programs to run, too
        parts="base io format megatron convert"
        threaded="io engine group"
        threaded_tests=$threaded
        fuzz_targets=$(echo "$fuzz_targets" | grep -v 'command_line\|train_arguments\|token_files\|training_logs\|json_lines\|parquet')
    fi
    # shellcheck disable=SC2046,SC2086 # lists of words
    {
        case " $parts " in *" tools "*) build asan ferry_tool tools_test ;; esac
        build asan $(printf '%s_test ' $parts) $fuzz_targets
        run_tests asan -R "^($(echo $parts $fuzz_targets | sed 's/fuzz_/fuzz./g' | tr ' ' '|'))\$"
        build tsan $(printf '%s_test ' $threaded)
        # It needs addresses that are not too random; not every container lets them be fixed.
        if setarch -R true 2>/dev/null; then under="setarch -R"; fi
        (
            export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp"
            # Allocations that fail one by one say nothing of threads, and take minutes.
            if [ -n "${GTEST_FILTER:-}" ]; then GTEST_FILTER="$GTEST_FILTER:*OutOfMemory*"; fi
            run_tests tsan -R "^($(echo $threaded_tests | tr ' ' '|'))\$"
        )
        under=
    }
}

echo "== direction of dependence"
tools/check_dependence.sh
echo "== words"
tools/check_words.sh
background=
trap 'for process in $background; do kill "$process" 2>/dev/null; done' EXIT
mkdir -p build
# join PROCESS LOG: waits for one that runs in the background, and shows what it printed
join() {
    passed=0
    wait "$1" || passed=$?
    background=$(echo " $background " | sed "s/ $1 / /")
    cat "$2"
    [ "$passed" = 0 ] || exit 1
}
interop=${FERRY_TEST_INTEROP:-${CI:+1}}
if [ "$interop" = 1 ]; then
    install_missing python3 python3-venv python3-dev
    # What the peers need is fetched while the compiler works.
    tests/interop/run.sh --prepare >build/interop-python.log 2>&1 &
    fetching=$!
    background=$fetching
fi
if [ "${FERRY_TEST_SANITIZERS:-}" = all ]; then export FERRY_TEST_EVERY_FLIP=1; fi
# Benchmarks are not tests: that they compile is for CI.
cmake --preset check -D FERRY_BENCHMARKS="${CI:+ON}" >/dev/null
build check
run_tests check
case ${FERRY_TEST_SANITIZERS:-${CI:+1}} in
'' | 0) echo "== without the sanitizers; FERRY_TEST_SANITIZERS=1 builds and tests with them" ;;
all) under_sanitizers ;;
*)
    # Bit flips, and a process killed at every step of a save, take minutes under them, and show
    # them no other code than the rest does. Every seventh operation that fails shows it all.
    (
        export FERRY_TEST_CASES="${FERRY_TEST_CASES:-10}" FERRY_TEST_STRIDE="${FERRY_TEST_STRIDE:-7}"
        export GTEST_FILTER='-Flips.*:*Crash*'
        under_sanitizers
    )
    ;;
esac
# Launches wait for Slurm most of the time, and run in the background of what follows.
launches=
if [ "${FERRY_TEST_LAUNCH:-${CI:+1}}" = 1 ]; then
    # The tests report what is missing then.
    # shellcheck disable=SC2086 # a list of words
    (install_missing $launch_packages) || echo "not all packages of Slurm can be installed here"
    tests/launch/run.sh build/check/bin/ferry >build/launches.log 2>&1 &
    launches=$!
    background="$background $launches"
else
    echo "== without Slurm; FERRY_TEST_LAUNCH=1 tests launches under it"
fi
if [ "$interop" = 1 ]; then
    join "$fetching" build/interop-python.log
    echo "== against the peers' Python programs"
    tests/interop/run.sh build/check/bin/ferry
    echo "== the Python package"
    # shellcheck disable=SC2046 # a list of words
    tools/wheels.sh check build/wheels $(find_python 3.11) $(find_python 3.12 3.13 3.14)
    # It fetches and installs most of the time.
    tests/python/check_wheel.sh build/wheels >build/check_wheel.log 2>&1 &
    checking=$!
    background="$background $checking"
    FERRY_WHEELS=build/wheels tests/python/run.sh
    join "$checking" build/check_wheel.log
else
    echo "== without the peers' Python programs; FERRY_TEST_INTEROP=1 runs them"
fi
if [ -n "$launches" ]; then
    echo "== launches under a real Slurm, and manifests"
    join "$launches" build/launches.log
fi
echo "== all passed"
sed -n '/tests passed/p' build/check/ctest.log
