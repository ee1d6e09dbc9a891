#include "tools/terminal/exit_code.h"

#include <fmt/format.h>

#include <array>

namespace ferry::tool {
namespace {

struct Row {
  ErrorKind kind;
  int code;
  const char* meaning;
};

constexpr std::array<Row, 10> kRows{{
    {ErrorKind::invalid, kExitUsage, "wrong argument or option, or the target exists"},
    {ErrorKind::not_found, 3, "a file, tensor or iteration is not there"},
    {ErrorKind::corrupt, 4, "a file contradicts its own format"},
    {ErrorKind::unsupported, 5, "valid, but ferry cannot read or express it"},
    {ErrorKind::mismatch, 6, "things that must agree do not (names, shapes, family)"},
    {ErrorKind::io, 7, "the operating system refused"},
    {ErrorKind::exhausted, 8, "out of disk, memory budget or a parser's limit"},
    {ErrorKind::internal, 9, "a bug in ferry"},
    {ErrorKind::busy, 10, "another process writes or reads it; try again when it is done"},
    {ErrorKind::cancelled, 130, "stopped by a signal; nothing unfinished is left under its name"},
}};

}  // namespace

int exit_code(ErrorKind kind) noexcept {
  for (const Row& row : kRows) {
    if (row.kind == kind) return row.code;
  }
  return exit_code(ErrorKind::internal);
}

std::string exit_code_help() {
  std::string text = "Exit codes:\n    0  done\n    1  diff: the tensors differ\n";
  for (const Row& row : kRows) {
    text += fmt::format("  {:>3}  {}: {}\n", row.code, name(row.kind), row.meaning);
  }
  return text;
}

std::string hint(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return "this is a bug in ferry: please report it with the command and this message";
    case ErrorKind::cancelled:
      return "nothing unfinished is left under its name";
    default:
      return "";
  }
}

}  // namespace ferry::tool
