#!/bin/sh
# Keeps words that read as translated, or that say less than a standard term, out of what users
# read: "Show", not "Tell"; "next to" or "during", not "beside"; "after", not "behind"; "is in",
# not "lies in". Prints file:line of each and exits with 1.
#
# Checked: the guides and decisions, the literals and comments of all sources, whose comments do
# not begin with "Of" either, and the comments of scripts.
set -eu
cd "$(dirname "$0")/.."
words='[Tt]ells?|[Tt]old|[Bb]eside|[Bb]ehind|[Ww]anted|[Ff]ellows?|[Hh]eeds?|[Mm]eans? nothing|[Ll]ies|[Ll]ent|[Ss]ettle[sd]?|[Ll]ook(s|ed)? at|[Aa]s it says'
pages=$(ls README.md CONTRIBUTING.md docs/*.md docs/decisions/*.md; find tests -name README.md)
sources=$(find ferry ckpt convert ops estimate trainer kernels text tools python tests examples \
    -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort)
scripts=$(find tools tests python examples -name '*.sh' -o -name '*.py' | sort)

# allowed: lines that may stay, as extended regular expressions of "file:line: text".
# Columns and keys that scripts read.
allowed='^(tools/data/mixture/mix\.cpp:[0-9]+:.*"wanted"'
allowed="$allowed|tools/data/dataset/check_program\.cpp:[0-9]+:.*\"told\""
allowed="$allowed|(tools|tests/tools)/inspect/[a-z_]+\.cpp:[0-9]+:.*\"beside\""
allowed="$allowed|docs/commands\.md:[0-9]+:.*\`(beside|wanted|told)\`"
allowed="$allowed|tools/check_words\.sh:)"

# shellcheck disable=SC2086 # lists of files
found=$({
    grep -nHE "(^|[^A-Za-z_-])($words)([^A-Za-z_-]|\$)" $pages
    grep -nHE "\"([^\"]*[^A-Za-z_\"-])?($words)([^A-Za-z_\"-][^\"]*)?\"" $sources
    grep -nHE "//(.*[^A-Za-z_-])?($words)([^A-Za-z_-]|\$)" $sources
    grep -nHE '//+ Of [^`]' $sources
    grep -nHE "#(.*[^A-Za-z_-])?($words)([^A-Za-z_-]|\$)" $scripts
    grep -nHE '# +Of [^`]|""" ?Of [^`]' $scripts
} | grep -vE "$allowed" || true)
if [ -n "$found" ]; then
    echo "$found"
    echo "error: write these in plain English; the words are listed in tools/check_words.sh" >&2
    exit 1
fi
