// Exit codes of the program, one for each kind of error.
#pragma once

#include <string>

#include "ckpt/base/error.h"

namespace ferry::tool {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDifferent = 1;  // of diff
inline constexpr int kExitUsage = 2;

int exit_code(ErrorKind kind) noexcept;

/// One line a code, for --help.
std::string exit_code_help();

/// What an error of this kind means beyond its message; empty: nothing to add.
std::string hint(ErrorKind kind);

}  // namespace ferry::tool
