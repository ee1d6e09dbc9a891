#include "tools/terminal/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "ckpt/base/error.h"
#include "ckpt/base/size_text.h"
#include "ckpt/base/utf8.h"
#include "ckpt/io/zstd_encoder.h"
#include "convert/model/mismatch.h"

namespace ferry::tool {
namespace {

constexpr size_t kShortestBeginning = 3;  // of a word that stands for the whole

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Characters that reorder or hide what stands around them.
bool is_deceptive(char32_t c) {
  return (c >= 0x80 && c < 0xa0) || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029 || c == 0xfeff;
}

size_t sequence_length(unsigned char lead) {
  return lead < 0x80 ? 1 : (lead < 0xe0 ? 2 : (lead < 0xf0 ? 3 : 4));
}

char32_t decode(std::string_view sequence) {
  static constexpr std::array<unsigned char, 5> kLeadMask{0, 0x7f, 0x1f, 0x0f, 0x07};
  char32_t c = static_cast<unsigned char>(sequence[0]) & kLeadMask[sequence.size()];
  for (char next : sequence.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3f);
  return c;
}

}  // namespace

std::string grouped(int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (int at = static_cast<int>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string human_count(int64_t count) {
  if (count < 1'000'000) return grouped(count);
  const double value = static_cast<double>(count);
  if (value < 999.5e6) return three_digits(value / 1e6) + " million";
  if (value < 999.5e9) return three_digits(value / 1e9) + " billion";
  return three_digits(value / 1e12) + " trillion";
}

std::string human_seconds(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

uint64_t parse_size(std::string_view text, std::string_view option) {
  const auto bytes = size_in_bytes(text);
  if (bytes) return *bytes;
  fail(ErrorKind::invalid, "{}: '{}' is not a size; write {}", option, printable(text), kSizeForms);
}

uint64_t parse_memory(std::string_view text) {
  constexpr uint64_t kLeast = uint64_t{8} << 20;
  const uint64_t bytes = parse_size(text, "--memory");
  if (bytes < kLeast) {
    fail(ErrorKind::invalid, "--memory: {} is too little to move tensors with; give at least 8MiB",
         printable(text));
  }
  return bytes;
}

int parse_compression(std::string_view text) {
  constexpr std::string_view kZstd = "zstd";
  int level = kDefaultZstdLevel;
  bool good = text.starts_with(kZstd);
  if (good && text.size() > kZstd.size()) {
    const char* end = text.data() + text.size();
    const char* begin = text.data() + kZstd.size() + 1;
    const auto [stop, error] = std::from_chars(begin, end, level);
    good = text[kZstd.size()] == ':' && error == std::errc() && stop == end &&
           level >= kLeastZstdLevel && level <= kMostZstdLevel;
  }
  if (!good) {
    fail(ErrorKind::invalid,
         "--compress takes zstd or zstd:LEVEL with a level from {} to {}, not '{}'",
         kLeastZstdLevel, kMostZstdLevel, printable(text));
  }
  return level;
}

std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const size_t equals = text.find('=');
  const auto stars = [](std::string_view part) {
    return std::count(part.begin(), part.end(), '*');
  };
  const std::string from = text.substr(0, equals);
  const std::string to = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (from.empty() || to.empty() || stars(from) > 1 || stars(from) != stars(to)) {
    fail(ErrorKind::invalid,
         "--rename: '{}' is not OLD=NEW, two names of tensors (or patterns with one * each)",
         printable(text));
  }
  return {from, to};
}

DType parse_dtype(std::string_view text) {
  const std::optional<DType> dtype = dtype_from_text(text);
  if (dtype && is_floating_point(*dtype)) return *dtype;
  fail(ErrorKind::invalid, "--dtype: '{}' is not a floating-point type such as bf16, fp16 or fp32",
       printable(text));
}

std::string printable(std::string_view text, bool keep_newlines) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = byte < 0x80 ? 1 : sequence_length(byte);
    const std::string_view sequence = text.substr(at, length);
    if (byte == '\n' && !keep_newlines) {
      safe += "\\n";
    } else if (byte == '\n' || (byte >= 0x20 && byte < 0x7f)) {
      safe += static_cast<char>(byte);
    } else if (byte < 0x80 || utf8_prefix(sequence, false) < length || sequence.size() < length) {
      safe += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    } else if (const char32_t c = decode(sequence); is_deceptive(c)) {
      safe += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      safe += sequence;
    }
    at += length;
  }
  return safe;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right,
                  std::string_view indent) {
  std::vector<size_t> widths(right.size());
  for (const auto& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], display_width(row[column]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line(indent);
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string blanks(widths[column] - display_width(row[column]), ' ');
      line += (column ? "  " : "");
      line += right[column] ? blanks + row[column] : row[column] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string nearest_word(std::string_view given, const std::vector<std::string>& words) {
  const std::string typed = lower_case(given.substr(0, 100));
  size_t least = typed.size() / 3 + 1;
  std::string nearest, begun;
  int beginnings = 0;
  for (const std::string& word : words) {
    if (typed.size() >= kShortestBeginning && word.starts_with(typed) && beginnings++ == 0) {
      begun = word;
    }
    const size_t distance = edit_distance(typed, lower_case(word), least);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest.empty() && beginnings == 1 ? begun : nearest;
}

std::string unknown_command(std::string_view given, const std::string& parent,
                            const std::vector<std::string>& names,
                            const std::vector<std::string>& below) {
  std::string nearest = nearest_word(given, names);
  std::vector<std::string> last_words;
  for (const std::string& name : below) last_words.push_back(name.substr(name.rfind(' ') + 1));
  if (nearest.empty()) {
    const auto found = std::ranges::find(last_words, nearest_word(given, last_words));
    if (found != last_words.end()) nearest = below[static_cast<size_t>(found - last_words.begin())];
  }
  return fmt::format("'{}' is not a command{}{}{}; the commands are {}", printable(given),
                     parent.empty() ? "" : " of " + parent,
                     nearest.empty() ? "" : "; the nearest is ", nearest, fmt::join(names, ", "));
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace ferry::tool
