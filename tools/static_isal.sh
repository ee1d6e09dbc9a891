#!/bin/sh
# static_isal.sh: makes build/static/libisal.a, which Debian does not have, from the source of Debian's
# package, as far as ferry uses it. Installs nothing; needs nasm and a network, once.
set -eu
cd "$(dirname "$0")/.."
[ ! -s build/static/libisal.a ] || exit 0
echo "== ISA-L as an archive"
mkdir -p build/static
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Where apt gets packages from, their sources are, too. Its own lists stay as they are.
mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
chmod 755 "$work"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ -f "$list" ] || continue
    case $list in
    *.sources) sed 's/^Types:.*/Types: deb-src/' "$list" >"$work/parts/$(basename "$list")" ;;
    *.list) sed -n 's/^deb /deb-src /p' "$list" >"$work/parts/$(basename "$list")" ;;
    esac
done
apt_source() {
    apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/parts" -o Dir::State::Lists="$work/lists" \
        -o Dir::Cache="$work/cache" "$@"
}
apt_source update
(cd "$work" && apt_source source --download-only libisal)
mkdir "$work/isal"
tar -xf "$work"/libisal_*.orig.tar.* -C "$work/isal" --strip-components=1
# With -g the path of this folder would be in it.
make -C "$work/isal" -f Makefile.unx units="crc igzip" DEBUG= DEBUG_nasm= lib >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mv "$work/isal/bin/isa-l.a" build/static/libisal.a
