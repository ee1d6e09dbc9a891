// Patterns of the peers' regular expressions as patterns of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "text/split/splitter.h"

namespace ferry {

/// The pattern that matches in PCRE2 (with UTF and UCP) what `pattern` does in its own program:
/// character classes with && and classes inside, \s \w \h \b, scripts, POSIX classes, the ends of
/// lines, braces with a possessive sign. unsupported, with `what` at its start, where there is
/// no such pattern.
std::string pcre2_pattern(std::string_view pattern, PatternSyntax syntax, const std::string& what);

}  // namespace ferry
