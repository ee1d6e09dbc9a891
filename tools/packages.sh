# Sourced by demo.sh and test.sh: what a bare Debian 12, Debian 13 or Ubuntu 24.04 lacks, by apt.
# install_missing PACKAGE... installs those that are not there, as root or through sudo.
build_packages="cmake g++ ninja-build pkg-config libfmt-dev nlohmann-json3-dev libzstd-dev libxxhash-dev libisal-dev nettle-dev libyaml-dev liblzma-dev libcli11-dev libdnnl-dev libpcre2-dev libutf8proc-dev"
test_packages="libgtest-dev libgmock-dev xz-utils zstd"
# What is linked into programs that run anywhere (cmake/portable.cmake).
portable_packages="libblis-openmp-dev nasm make"
# What launches are tested under (tests/launch).
launch_packages="slurm-wlm munge shellcheck python3-yaml git"

install_missing() {
    missing=
    for package in "$@"; do
        status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "these packages are missing; install them as root:$missing" >&2; exit 1; }
        as_root=sudo
    fi
    echo "== installing$missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# find_python VERSION...: the first of these that is here, with the headers that a module needs
find_python() {
    for release in "$@"; do
        for python in "$(command -v "python$release")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$release".*/bin/python; do
            if [ -x "$python" ] && "$python" -c 'import os, sys, sysconfig, venv
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null; then
                echo "$python"
                return
            fi
        done
    done
    echo "without Python $1: it is not here, or lacks its headers or venv" >&2
}
