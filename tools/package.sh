#!/bin/sh
# package.sh [FOLDER]: builds the program and packs it, into build/packages by default:
#
#   ferry-VERSION-linux-ARCH.tar.xz    runs on any Linux with glibc 2.28 or later: unpack it and call bin/ferry
#   ferry_checkpoint-VERSION-*.whl     the same program and the module for Python, as wheels: for Python 3.12 and
#                                      later, and for 3.10 and 3.11, as far as these are here with their headers
#                                      (in PATH, or as pyenv has them)
#   ferry_VERSION_ARCH.deb             for the Debian or Ubuntu that this is
#
# All have man pages and completions for shells. Containerfile makes a container of the .deb;
# tests/install/check_packages.sh and tests/python/check_wheel.sh hold them against what they should be.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $build_packages $portable_packages dpkg-dev xz-utils

mkdir -p "${1:-build/packages}"
packages=$(realpath "${1:-build/packages}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

tools/static_isal.sh
cmake --preset package >/dev/null
cmake --build --preset package
version=$(build/package/bin/ferry --version | sed 's/^ferry //')
arch=$(uname -m)
# The same sources make the same archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

pack_tarball() {
    name=ferry-$version-linux-$arch
    root=$stage/$name
    cmake --install build/package --component portable --strip --prefix "$root" >/dev/null
    cp LICENSE README.md "$root"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$stage" -cJf "$packages/$name.tar.xz" "$name"
}

pack_deb() {
    root=$stage/deb
    architecture=$(dpkg --print-architecture)
    cmake --install build/package --component program --strip --prefix "$root/usr" >/dev/null
    gzip -9 -n "$root"/usr/share/man/man1/*
    # Where Debian's zsh looks.
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    mkdir -p "$root/usr/share/doc/ferry" "$root/DEBIAN" "$stage/debian"
    cp LICENSE "$root/usr/share/doc/ferry/copyright"
    printf 'Source: ferry\n' >"$stage/debian/control"
    depends=$(cd "$stage" && dpkg-shlibdeps -O deb/usr/bin/ferry 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    cat >"$root/DEBIAN/control" <<X
Package: ferry
Version: $version
Architecture: $architecture
Maintainer: the ferry developers <ferry@localhost>
Section: science
Priority: optional
Depends: $depends
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: carries language models between training layouts and checkpoint formats
 Opens, converts, reshards, verifies and compares checkpoints of Megatron-LM,
 PyTorch, NeMo 2 and Hugging Face, and trains small models, without Python.
X
    (cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group --build "$root" "$packages/ferry_${version}_$architecture.deb" >/dev/null
}

pack_tarball
pack_deb
pythons="$(find_python 3.12 3.13 3.14) $(find_python 3.11) $(find_python 3.10)"
# shellcheck disable=SC2086 # a list of words
set -- $pythons
[ $# = 0 ] || tools/wheels.sh package "$packages" "$@"
ls -l "$packages"
