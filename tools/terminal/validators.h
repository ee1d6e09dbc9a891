// What options take, checked before anything is done, and refused in words of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ferry::tool {

/// What is wrong with an option's value, as words; empty: nothing. May rewrite it into what the
/// parser understands.
using Check = std::function<std::string(std::string&)>;

/// A whole number from `least` to `most` in decimal digits: "010" is ten.
Check whole_number(int64_t least, int64_t most);

/// A finite number that is not negative: "1e-6".
Check not_negative();

/// Any text but none; `problem` is what the refusal says.
Check not_empty(std::string problem);

/// A prefix that files are to be called by: neither empty nor the name of a folder ("data/"), in
/// which they would be hidden ones.
Check file_prefix();

/// One of some words, as they are spelled. `others` says of words that are none of them what is to
/// be done, whatever their case and with '-' for '_'.
Check one_of(std::vector<std::string> words, std::map<std::string, std::string> others = {});

}  // namespace ferry::tool
