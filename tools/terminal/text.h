// Numbers, sizes and names as people read and write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/base/glob.h"
#include "ckpt/base/size_text.h"
#include "ckpt/base/utf8.h"

namespace ferry::tool {

/// A report shows so many notes; --json has all.
inline constexpr size_t kNotesShown = 8;

/// "1,234,567"
std::string grouped(int64_t number);

/// "8.03 B parameters" style count without its noun: "67,808", "8.03 billion".
std::string human_count(int64_t count);

/// "0.42 s", "1 min 5 s", "2 h 3 min"
std::string human_seconds(double seconds);

/// "512MiB", "5GB", "1.5kB", "4096": bytes. invalid, naming `option`, for anything else.
uint64_t parse_size(std::string_view text, std::string_view option);

/// The value of --memory: a size of at least 8 MiB, or invalid.
uint64_t parse_memory(std::string_view text);

/// The value of --dtype: "bf16", "fp16", "fp32" or a floating-point type as PyTorch or safetensors
/// spell it; invalid for anything else.
DType parse_dtype(std::string_view text);

/// The value of --compress: "zstd" or "zstd:LEVEL", as a level; invalid for anything else.
int parse_compression(std::string_view text);

/// The value "OLD=NEW" of --rename: two names, or two patterns with one * each; invalid for
/// anything else.
std::pair<std::string, std::string> parse_rename(const std::string& text);

/// `text` made safe to print: control characters, bidirectional overrides and bytes that are not
/// UTF-8 become \n, \x1b, \u202e. Newlines stay where `keep_newlines`.
std::string printable(std::string_view text, bool keep_newlines = false);

/// Columns of the terminal that `text` takes, roughly: its code points.
size_t display_width(std::string_view text);

/// Rows aligned in columns two spaces apart, each line after `indent`. A column is right-aligned
/// when `right` says so. Trailing blanks are left out.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right,
                  std::string_view indent);

/// The one of `words` that `given` is most likely a misspelling of, whatever the case, or else the
/// only one that begins so; empty: none is near.
std::string nearest_word(std::string_view given, const std::vector<std::string>& words);

/// "'lst' is not a command of ferry runs; the nearest is list; the commands are list, ..." `parent`
/// is empty for the program itself. `below`: commands of commands ("data merge"), of which one may
/// be meant.
std::string unknown_command(std::string_view given, const std::string& parent,
                            const std::vector<std::string>& names,
                            const std::vector<std::string>& below);

/// `text` as one word of a shell, for command lines that a user may paste: in quotes where it holds
/// more than letters, digits and _@%+=:,./-
std::string shell_word(std::string_view text);

}  // namespace ferry::tool
