#!/bin/sh
# check_packages.sh FOLDER: whether the packages that tools/package.sh put there hold what they
# should, nothing besides, and no path of the machine that made them. It installs nothing.
set -eu
packages=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
complain() {
    echo "wrong: $*" >&2
    wrong=1
}

# same_list WHAT FILE: names on standard input are those in FILE.
same_list() {
    LC_ALL=C sort >"$work/found"
    LC_ALL=C sort "$2" | diff - "$work/found" >"$work/diff" || complain "$1: $(tr '\n' ' ' <"$work/diff")"
}

# no_paths FOLDER: of the folder that it was built in, or the builder's.
no_paths() {
    here=$(cd "$(dirname "$0")/../.." && pwd)
    grep -rlF -e "$here" -e "${HOME:-/nowhere}/" "$1" >"$work/paths" || true
    [ ! -s "$work/paths" ] || complain "a path of this machine stands in $(tr '\n' ' ' <"$work/paths")"
}

deb=$(ls "$packages"/ferry_*.deb)
dpkg-deb --fsys-tarfile "$deb" | tar -tf - | sed 's/^\.//' | grep -v '/$' >"$work/files"
pages='^/usr/share/man/man1/ferry(-[a-z-]+)?\.1\.gz$'
grep -E "$pages" "$work/files" >"$work/pages" || true
[ "$(wc -l <"$work/pages")" -gt 12 ] || complain "$deb: $(wc -l <"$work/pages") man pages"
cat >"$work/expected" <<X
/usr/bin/ferry
/usr/share/bash-completion/completions/ferry
/usr/share/doc/ferry/copyright
/usr/share/fish/vendor_completions.d/ferry.fish
/usr/share/zsh/vendor-completions/_ferry
X
grep -vE "$pages" "$work/files" >"$work/others"
same_list "$deb" "$work/expected" <"$work/others"
for field in Package Version Architecture Maintainer Section Priority Depends Installed-Size Description; do
    [ -n "$(dpkg-deb -f "$deb" "$field")" ] || complain "$deb: no $field"
done
dpkg-deb -f "$deb" Depends | grep -q 'libc6 (>= ' || complain "$deb: Depends names no C library"
dpkg-deb -R "$deb" "$work/deb"
(cd "$work/deb" && md5sum -c --quiet DEBIAN/md5sums) || complain "$deb: md5sums"
[ -z "$(find "$work/deb" ! -user "$(id -un)")" ] || complain "$deb: other owners"
no_paths "$work/deb"

tarball=$(ls "$packages"/ferry-*-linux-*.tar.xz)
tar -xJf "$tarball" -C "$work"
root=$(ls -d "$work"/ferry-*)
for library in $(objdump -p "$root/bin/ferry" | sed -n 's/^ *NEEDED *//p'); do
    case $library in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux-x86-64.so.2) ;;
    *) complain "$tarball: needs $library" ;;
    esac
done
newest=$(objdump -T "$root/bin/ferry" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -1)" = GLIBC_2.28 ] || complain "$tarball: needs $newest"
for file in LICENSE README.md share/man/man1/ferry.1 share/doc/ferry/libraries/libzstd-dev.copyright; do
    [ -s "$root/$file" ] || complain "$tarball: lacks $file"
done
[ -z "$(find "$root" -type l)" ] || complain "$tarball: holds links"
no_paths "$root"
"$root/bin/ferry" --version >/dev/null || complain "$tarball: does not run"
[ "$wrong" = 1 ] || echo "$deb and $tarball: as they should be"
exit $wrong
