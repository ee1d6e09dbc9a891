// Patterns that are not written by hand, by PCRE2.
#pragma once

#include <memory>
#include <string>

#include "text/split/splitter.h"

namespace ferry {

/// `pattern` is PCRE2's own. unsupported, with `what` at its start, when it cannot be compiled. Its
/// find() is exhausted after so many steps that no pattern of a tokenizer needs them. Properties of
/// characters are those of the library's Unicode (PCRE2 10.42: Unicode 14).
std::unique_ptr<const Splitter> make_regex_splitter(const std::string& pattern,
                                                    const std::string& what);

}  // namespace ferry
