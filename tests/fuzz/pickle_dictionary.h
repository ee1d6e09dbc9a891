// Words of the language of pickles: what checkpoints say, and the edges of what can be said.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/pickle_opcodes.h"

namespace ferry::test {

extern const std::vector<std::string_view> kModulesAndNames;  // with a line break between them
extern const std::vector<std::string_view> kTexts;            // keys, names, edges
extern const std::vector<std::string_view> kLines;            // arguments of protocol 0
extern const std::vector<uint64_t> kNumbers;

/// Programs that push one value, whatever is on the stack.
const std::vector<PickleProgram>& pushing_programs();
/// Programs that change the value on top of the stack, or put another in its place.
const std::vector<PickleProgram>& changing_programs();

}  // namespace ferry::test
