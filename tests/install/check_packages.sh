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
needed=$(objdump -p "$root"/lib/ferry/* | sed -n 's/^ *NEEDED *//p' | sort -u)
for library in $needed; do
    [ -e "$root/lib/ferry/$library" ] || complain "$tarball: lacks $library"
done
for file in bin/ferry LICENSE README.md share/man/man1/ferry.1; do
    [ -e "$root/$file" ] || complain "$tarball: lacks $file"
done
libraries=$(find "$root/lib/ferry" -name '*.so*' | wc -l)
licences=$(find "$root/share/doc/ferry/libraries" -size +0 | wc -l)
if [ "$licences" -le 8 ] || [ "$libraries" -lt "$licences" ]; then
    complain "$tarball: $licences licences of $libraries libraries"
fi
[ -z "$(find "$root" -type l)" ] || complain "$tarball: holds links"
no_paths "$root"
"$root/bin/ferry" --version >/dev/null || complain "$tarball: does not run"
[ "$wrong" = 1 ] || echo "$deb and $tarball: as they should be"
exit $wrong
