#!/bin/sh
# libc_stubs.sh FOLDER VERSION [CC]: makes stand-ins for this machine's C library, to link with. They have what
# it had in VERSION of glibc (2.27), each symbol in the version that it had then, and no code.
#
# A program is bound to the versions of symbols that it is linked with, and a newer library keeps the old
# ones. So what is linked with these runs with VERSION and all later ones, and a symbol that came later
# is undefined: newer_libc.c defines those that are needed.
#
# The loader also wants each symbol in the library that it was in. Until 2.34 that of threads and two others were
# libraries of their own; what has moved into the C library since then has two versions there, its old one and
# one of 2.32 to 2.35, and its name says from where it came.
set -eu
folder=$1 newest=$2 cc=${3:-cc}
mkdir -p "$folder"

# symbols FILE...: "library name version type size address" of what they define up to `newest`, in the last
# version each; the library is "libc" for what did not move.
symbols() {
    for file in "$@"; do readelf --dyn-syms -W "$file"; done |
        awk -v newest="$newest" '
            function number(version, parts) {
                split(version, parts, ".")
                return parts[1] * 1000000 + parts[2] * 1000 + parts[3]
            }
            function library(symbol) {
                if (!(symbol in moved) || symbol == "__libc_start_main") return "libc"
                if (symbol ~ /^_*(pthread|sem)_/) return "libpthread"
                if (symbol ~ /^dl[a-z]/) return "libdl"
                if (symbol ~ /^(shm|timer|mq|aio|lio)_/) return "librt"
                return "other"
            }
            $7 == "UND" || split($8, name, /@+GLIBC_/) != 2 || name[2] !~ /^[0-9.]+$/ { next }
            $8 ~ /@@/ { offered[name[1]] = 1 }  # others are there for old programs alone
            number(name[2]) >= number("2.32") && number(name[2]) <= number("2.35") { moved[name[1]] = 1 }
            number(name[2]) > number(newest) || (name[1] in version && number(version[name[1]]) >= number(name[2])) { next }
            {
                version[name[1]] = name[2]
                rest[name[1]] = ($4 == "OBJECT" ? "object" : "function") " " $3 " " $2
            }
            END { for (symbol in version) if (symbol in offered) print library(symbol), symbol, version[symbol], rest[symbol] }'
}

# stub SONAME LIBRARY: SONAME in the folder, with what $folder/symbols has of the library. Names of one variable
# stay one.
stub() {
    soname=$1
    sed -n "s/^$2 //p" "$folder/symbols" >"$folder/$soname.list"
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
symbols "$(of libc.so.6)" | LC_ALL=C sort >"$folder/symbols"
for library in libc.so.6 libpthread.so.0 libdl.so.2 librt.so.1; do stub $library ${library%.so.*}; done
for library in libm.so.6 ld-linux-x86-64.so.2; do
    symbols "$(of $library)" | LC_ALL=C sort >"$folder/symbols"
    stub $library libc
done
rm "$folder/symbols"
