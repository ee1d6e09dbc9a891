#!/bin/sh
# Keeps words that read as translated, or that say less than a standard term, out of what users
# read: "Show", not "Tell"; "next to" or "during", not "beside"; "after", not "behind"; "is in",
# not "lies in". Prints file:line of each and exits with 1.
#
# Checked today: the pages named below, the string literals of sources that describe commands and
# options, and the literals and comments of whole parts (`parts`), whose comments do not begin with
# "Of" either. Not yet: docs/commands.md, errors.md, benchmarks.md, seeds.md, tutorial-mnist.md and
# decisions; other sources. Extend the lists as these are rewritten.
set -eu
cd "$(dirname "$0")/.."
words='[Tt]ells?|[Tt]old|[Bb]eside|[Bb]ehind|[Ww]anted|[Ff]ellows?|[Hh]eeds?|[Mm]eans? nothing|[Ll]ies|[Ll]ent|[Ss]ettle[sd]?|[Ll]ook(s|ed)? at|[Aa]s it says'
pages='README.md docs/quick-start.md docs/trainer.md docs/families.md docs/formats.md docs/data.md docs/launch.md docs/library.md docs/tokenizers.md'
# Sources that call CLI11, and those with options or keys that several commands share.
sources=$(grep -rlE 'add_(option|flag|subcommand)\(' tools --include='*.cpp' | sort)
sources="$sources tools/launch/configuration_keys.cpp"
# Parts whose literals and comments are checked.
parts=$(find ckpt convert trainer kernels text -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort)

# allowed: lines that may stay, as extended regular expressions of "file:line: text".
# A column that scripts read.
allowed='^tools/data/mixture/mix\.cpp:[0-9]+:.*"wanted"'

# shellcheck disable=SC2086 # lists of files
found=$({
    grep -nHE "(^|[^A-Za-z_-])($words)([^A-Za-z_-]|\$)" $pages
    grep -nHE "\"([^\"]*[^A-Za-z_\"-])?($words)([^A-Za-z_\"-][^\"]*)?\"" $sources $parts
    grep -nHE "//(.*[^A-Za-z_-])?($words)([^A-Za-z_-]|\$)" $parts
    grep -nHE '//+ Of [^`]' $parts
    grep -nHE '[Aa]s it says' docs/errors.md
} | grep -vE "$allowed" || true)
if [ -n "$found" ]; then
    echo "$found"
    echo "error: write these in plain English; the words are listed in tools/check_words.sh" >&2
    exit 1
fi
