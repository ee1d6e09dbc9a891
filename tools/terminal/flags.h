// Messages of the libraries as this program shows them: with its flags in place of the options of
// operations (ckpt/base/error.h).
//
// What goes to standard error (print_aside) and what --json prints (json_text) is spelled there. A
// report in text or HTML takes its notes, warnings and problems from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

/// A message of the libraries with its options as flags: "--optimizer none".
std::string in_flags(std::string_view message);

/// The same for all members, at any depth, that are called as reports call messages: "notes",
/// "warnings", "problems" and the like.
void put_in_flags(nlohmann::json& report);

/// The message in_flags() and safe to print, as printable().
std::string message_text(std::string_view message, bool keep_newlines = false);

/// "note: ...", a line each; where there are more than `most`, the last says how many.
std::string note_lines(const std::vector<std::string>& notes, size_t most = SIZE_MAX);

}  // namespace ferry::tool
