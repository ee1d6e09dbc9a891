// Values of arguments: parsed from a command line, printed as Python prints them, stored in
// checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Empty: None.
using ArgumentValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

/// Every n-th layer, or 0 or 1 for each layer; empty: not given.
using LayerPattern = std::variant<std::monostate, int64_t, std::vector<int64_t>>;

enum class ArgumentKind : uint8_t {
  flag,     // true when it is given
  negated,  // false when it is given
  either,   // --x, --no-x
  integer,
  real,
  text,
  integers,  // one word or more
  reals,
  texts,
  pattern,  // a number, or a list as an expression: ([0]*3+[1]*2)*4
  pair,     // "127,0"
  dtype,    // fp32: torch.float32
  signal,   // SIGTERM
};

/// Parses the words after a flag. invalid, naming the flag and what it takes.
ArgumentValue parse_argument(ArgumentKind kind, std::string_view flag,
                             std::span<const std::string> words);

/// A default, in Python's notation.
ArgumentValue parse_initial(ArgumentKind kind, std::string_view initial);

/// A value from a checkpoint's arguments or a YAML file. invalid, naming `name`.
ArgumentValue read_argument(ArgumentKind kind, std::string_view name, const Value& value);

/// Python's str().
std::string python_text(ArgumentKind kind, const ArgumentValue& value);

/// The object that Megatron-LM would pickle.
Value python_value(ArgumentKind kind, const ArgumentValue& value, Draft& draft);

/// Python's repr() of a float.
std::string python_real(double value);

/// "fp32" for "torch.float32"; other names are returned unchanged.
std::string_view dtype_word(std::string_view dtype);

/// The number of a signal that stops a run; invalid for any other.
int signal_number(std::string_view name);

}  // namespace ferry
