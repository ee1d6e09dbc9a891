// Characters that the peers know, and an older PCRE2 does not.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// What a class of PCRE2 needs beside \p{property} to have all of its characters in Unicode 16, as
/// items: nothing where the library knows them, or the property is none of L, Lu, Ll, Lm, Lo, M,
/// N, Nd, S, P, Alphabetic, Han, or "w" for \w.
std::string newer_characters(std::string_view property);

}  // namespace ferry
