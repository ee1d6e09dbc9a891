// Pickles as lists of opcodes with arguments, which can be changed and encoded again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::test {

/// What follows an opcode.
enum class Argument : uint8_t {
  none,
  number1,  // little-endian, of that many bytes
  number2,
  number4,
  number8,
  real,       // eight bytes, big-endian
  line,       // up to a line break
  two_lines,  // `text` has the line break between them
  counted1,   // a length of that many bytes, then text
  counted4,
  counted8,
};

struct PickleOp {
  uint8_t code = 0;
  uint64_t number = 0;  // numbers, bits of a real; of counted text a length that is not its own
  bool false_length = false;
  std::string text{};
};

using PickleProgram = std::vector<PickleOp>;

/// Nothing for what is not an opcode.
std::optional<Argument> argument_of(uint8_t code);

/// All codes that are opcodes.
const std::vector<uint8_t>& pickle_codes();

/// The opcodes up to STOP, or as far as they can be separated.
PickleProgram decode_pickle(std::string_view bytes);

/// Every frame reaches to the end, so that changes do not break it, but one that is absurdly long.
std::string encode_pickle(const PickleProgram& program);

}  // namespace ferry::test
