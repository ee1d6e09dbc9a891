#!/bin/sh
# libc_stubs.sh FOLDER VERSION [CC]: makes stand-ins for this machine's C library, to link with. They have what
# it had in VERSION of glibc (2.27), each symbol in the version that it had then, and no code.
#
# A program is bound to the versions of symbols that it is linked with, and a newer library keeps the old
# ones. So what is linked with these runs with VERSION and all later ones, and a symbol that came later
# is undefined: newer_libc.c defines those that are needed.
set -eu
folder=$1 newest=$2 cc=${3:-cc}
mkdir -p "$folder"

# symbols FILE...: "name version type size address" of what they define up to `newest`, in the last version each.
symbols() {
    for file in "$@"; do readelf --dyn-syms -W "$file"; done |
        awk -v newest="$newest" '
            function number(version, parts) {
                split(version, parts, ".")
                return parts[1] * 1000000 + parts[2] * 1000 + parts[3]
            }
            $7 != "UND" && split($8, name, /@+GLIBC_/) == 2 && name[2] ~ /^[0-9.]+$/ && number(name[2]) <= number(newest) {
                if (name[1] in version && number(version[name[1]]) >= number(name[2])) next
                version[name[1]] = name[2]
                rest[name[1]] = ($4 == "OBJECT" ? "object" : "function") " " $3 " " $2
            }
            END { for (symbol in version) print symbol, version[symbol], rest[symbol] }'
}

# stub SONAME FILE...: SONAME in the folder, with what the files define. Names of one variable stay one.
stub() {
    soname=$1
    shift
    symbols "$@" | LC_ALL=C sort >"$folder/$soname.list"
    {
        echo '.text'
        awk '$3 == "function" { print ".globl " $1 "\n.type " $1 ",@function\n" $1 ": .byte 0" }' "$folder/$soname.list"
        echo '.bss'
        LC_ALL=C sort -k5,5 -k1,1 "$folder/$soname.list" | awk '
            $3 != "object" { next }
            $5 != address { if (address != "") print ".skip " size; print ".balign 32"; address = $5; size = 1 }
            { print ".globl " $1 "\n.type " $1 ",@object\n.size " $1 "," $4 "\n" $1 ":"; if ($4 > size) size = $4 }
            END { if (address != "") print ".skip " size }'
        echo '.section .note.GNU-stack,"",@progbits'
    } >"$folder/$soname.s"
    # GLIBC_2.2.5 { global: ...; }; and so on
    LC_ALL=C sort -k2,2 -k1,1 "$folder/$soname.list" | awk '
        $2 != version { if (version != "") print "};"; version = $2; print "GLIBC_" version " { global:" }
        { print "  " $1 ";" }
        END { if (version != "") print "};" }' >"$folder/$soname.map"
    "$cc" -shared -nostdlib -Wl,-soname,"$soname" -Wl,--version-script,"$folder/$soname.map" -Wl,-z,noexecstack \
        -o "$folder/$soname" "$folder/$soname.s"
    rm "$folder/$soname.s" "$folder/$soname.map" "$folder/$soname.list"
}

of() { realpath "$("$cc" -print-file-name="$1")"; }
# Since 2.34 the C library has what was in the other three, in the versions that it had there.
stub libc.so.6 "$(of libc.so.6)" "$(of libpthread.so.0)" "$(of libdl.so.2)" "$(of librt.so.1)"
stub libm.so.6 "$(of libm.so.6)"
loader=$(basename "$("$cc" -print-file-name=ld-linux-x86-64.so.2)")
stub "$loader" "$(of "$loader")"
for soname in libpthread.so.0 libdl.so.2 librt.so.1; do
    "$cc" -shared -nostdlib -Wl,-soname,"$soname" -o "$folder/$soname" -x c /dev/null
done
