#!/bin/sh
# package.sh [FOLDER]: builds the program and packs it, into build/packages by default:
#
#   ferry-VERSION-linux-ARCH.tar.xz    runs on any Linux: unpack it and call bin/ferry. It has the
#                                      libraries with it, the C library and its loader too
#   ferry_VERSION_ARCH.deb             for the Debian or Ubuntu that this is
#
# Both have man pages and completions for shells. Containerfile makes a container of the .deb, and
# tests/install/check_packages.sh holds both against what they should be.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086 # a list of words
install_missing $build_packages dpkg-dev xz-utils

mkdir -p "${1:-build/packages}"
packages=$(realpath "${1:-build/packages}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

cmake --preset package >/dev/null
cmake --build --preset package
version=$(build/package/bin/ferry --version | sed 's/^ferry //')
arch=$(uname -m)
# The same sources make the same archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# pack_tarball: what the loader finds for the program here goes along with it
add_library() {
    cp -L "$1" "$root/lib/ferry/"
    # Its licence goes along. Debian knows a library under the path that it is really at, or, where
    # /lib is a link to /usr/lib, under that of before.
    real=$(readlink -f "$1")
    owner=$(dpkg -S "$real" "${real#/usr}" "$1" 2>/dev/null | sed -n '1s/:.*//p')
    [ -n "$owner" ] || { echo "error: no package owns $1" >&2; exit 1; }
    cp -L "/usr/share/doc/$owner/copyright" "$root/share/doc/ferry/libraries/$owner.copyright"
}

pack_tarball() {
    name=ferry-$version-linux-$arch
    root=$stage/$name
    cmake --install build/package --component program --strip --prefix "$root" >/dev/null
    mkdir -p "$root/lib/ferry" "$root/share/doc/ferry/libraries"
    mv "$root/bin/ferry" "$root/lib/ferry/ferry"
    ldd "$root/lib/ferry/ferry" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\/ld-linux[^ ]*\) .*/\1/p' | while read -r library; do
        add_library "$library"
    done
    loader=$(basename "$(ls "$root"/lib/ferry/ld-linux*)")
    cat >"$root/bin/ferry" <<X
#!/bin/sh
# Calls ferry with the libraries that came with it.
here=\$(dirname "\$(readlink -f "\$0")")/../lib/ferry
# The program would start itself again to set this, and cannot below a loader of its own.
[ -n "\${OMP_WAIT_POLICY-}" ] || export GOMP_SPINCOUNT="\${GOMP_SPINCOUNT-10000}"
exec "\$here/$loader" --library-path "\$here" "\$here/ferry" "\$@"
X
    chmod 755 "$root/bin/ferry"
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
ls -l "$packages"
