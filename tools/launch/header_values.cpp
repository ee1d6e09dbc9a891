#include "tools/launch/header_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
constexpr int64_t kMostOfATime = 10'000'000;  // of each of its numbers

bool is_letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool consists_of(std::string_view text, std::string_view more) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || more.find(c) != std::string_view::npos;
  });
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  if (!is_whole || text.starts_with('-') || value > kMostOfATime) return std::nullopt;
  return value;
}

// Numbers between colons; empty where one is none.
std::vector<int64_t> numbers_of(std::string_view text) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t colon = text.find(':');
    const auto number = number_of(text.substr(0, colon));
    if (!number) return {};
    numbers.push_back(*number);
    if (colon == std::string_view::npos) return numbers;
    text.remove_prefix(colon + 1);
  }
}

// What each number of "12:30:00" counts, by how many there are.
std::optional<int64_t> seconds_of(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto days = number_of(text.substr(0, dash));
    const std::vector<int64_t> rest = numbers_of(text.substr(dash + 1));
    if (!days || rest.empty() || rest.size() > 3) return std::nullopt;
    int64_t seconds = *days * kDay, unit = kHour;
    for (const int64_t number : rest) seconds += number * std::exchange(unit, unit / 60);
    return seconds;
  }
  const std::vector<int64_t> all = numbers_of(text);
  if (all.size() == 1) return all[0] * kMinute;
  if (all.size() == 2) return all[0] * kMinute + all[1];
  if (all.size() == 3) return all[0] * kHour + all[1] * kMinute + all[2];
  return std::nullopt;
}

[[noreturn]] void fail_value(std::string_view key, const std::string& text,
                             std::string_view expected) {
  fail(ErrorKind::invalid, "{}: '{}' is not {}", key, printable(text), expected);
}

// Slurm takes a B after the unit without a word.
bool is_slurm_memory(std::string_view text) {
  if (text.size() > 1 && (text.ends_with('B') || text.ends_with('b'))) text.remove_suffix(1);
  constexpr std::string_view kUnits = "KMGTkmgt";
  if (!text.empty() && kUnits.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

// Sizes and names of jobs that the scripts reckon with.
constexpr std::pair<std::string_view, std::string_view> kOwnKeys[] = {
    {"nodes", "ranks.nodes"},
    {"ntasks", "ranks.nodes and ranks.per_node"},
    {"ntasks-per-node", "ranks.per_node"},
    {"job-name", "name"},
    {"signal", "chain.signal_seconds and chain.exit_signal"},
    {"dependency", "chain.requeue"}};

// Between the first and the last letter or digit, the characters of `more`, too.
bool is_name(std::string_view text, std::string_view more, size_t most) {
  return consists_of(text, more) && text.size() <= most && is_letter_or_digit(text.front()) &&
         is_letter_or_digit(text.back());
}

bool is_object_name(std::string_view text) {
  return is_name(text, "-.", 253) &&
         std::ranges::none_of(text, [](unsigned char c) { return std::isupper(c); });
}

}  // namespace

std::optional<int64_t> check_slurm_time(std::string_view key, const std::string& text) {
  if (text == "UNLIMITED" || text == "INFINITE") return std::nullopt;
  const auto seconds = seconds_of(text);
  if (!seconds) {
    fail_value(key, text,
               "a time of Slurm's: minutes (90), hours:minutes:seconds (12:00:00), "
               "days-hours (2-12), days-hours:minutes:seconds, or UNLIMITED");
  }
  return *seconds == 0 ? std::nullopt : seconds;
}

void check_slurm_memory(std::string_view key, const std::string& text) {
  if (is_slurm_memory(text)) return;
  fail_value(key, text, "an amount of memory of Slurm's: a whole number and K, M, G or T (64G)");
}

void check_slurm_names(std::string_view key, const std::string& text) {
  if (consists_of(text, "_-.,@+:/=%") && is_letter_or_digit(text.front())) return;
  fail_value(key, text, "a name, or several with commas between them: no blanks or quotes");
}

void check_slurm_constraint(std::string_view key, const std::string& text) {
  const auto count = [&](char c) { return std::ranges::count(text, c); };
  const bool is_closed = count('[') == count(']') && count('(') == count(')');
  if (is_closed && consists_of(text, "_-.,@+:/=%&|*[]()!")) return;
  fail_value(key, text, "an expression of features, such as gpu&nvlink or [rack1|rack2]");
}

void check_slurm_option(const std::string& option) {
  const size_t equals = option.find('=');
  const bool is_long = option.starts_with("--");
  const std::string name = is_long ? option.substr(2, equals - std::min<size_t>(equals, 2)) : "";
  if (!is_long || !consists_of(name, "-") || !is_letter_or_digit(name.front())) {
    fail(ErrorKind::invalid, "slurm.options: '{}' is none: --NAME or --NAME=VALUE",
         printable(option));
  }
  for (const auto& [own, key] : kOwnKeys) {
    if (name != own) continue;
    fail(ErrorKind::invalid, "slurm.options: --{}: give {} instead, on which the scripts rely",
         name, key);
  }
  if (equals == std::string::npos) return;
  const std::string key = "slurm.options: --" + name, value = option.substr(equals + 1);
  if (name == "time" || name == "time-min") check_slurm_time(key, value);
  if (name.starts_with("mem") && name != "mem-bind") check_slurm_memory(key, value);
  for (const char* each : {"account", "partition", "qos", "reservation"}) {
    if (name == each) check_slurm_names(key, value);
  }
  if (name == "constraint") check_slurm_constraint(key, value);
}

void check_quantity(std::string_view key, const std::string& text) {
  std::string_view rest = text;
  for (const std::string_view unit :
       {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "M", "G", "T", "P", "E", "m"}) {
    if (!rest.ends_with(unit)) continue;
    rest.remove_suffix(unit.size());
    break;
  }
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const bool is_number =
      !rest.empty() && is_digit(static_cast<unsigned char>(rest.front())) &&
      std::ranges::all_of(rest, [&](char c) { return is_digit(c) || c == '.'; }) &&
      std::ranges::count(rest, '.') <= 1;
  if (!is_number) fail_value(key, text, "an amount of Kubernetes': 64Gi, 1.5G, 500m");
}

void check_object_name(std::string_view key, const std::string& text) {
  if (is_object_name(text)) return;
  fail_value(key, text, "a name in Kubernetes: lower-case letters, digits, - and . between them");
}

void check_qualified_name(std::string_view key, const std::string& text) {
  const size_t slash = text.find('/');
  const std::string_view all = text;
  const std::string_view prefix = slash == std::string::npos ? "" : all.substr(0, slash);
  const std::string_view name = slash == std::string::npos ? all : all.substr(slash + 1);
  const bool is_good =
      (slash == std::string::npos || is_object_name(prefix)) && is_name(name, "-_.", 63);
  if (!is_good) fail_value(key, text, "a name of labels and resources, such as nvidia.com/gpu");
}

void check_label_value(std::string_view key, const std::string& text) {
  if (text.empty() || is_name(text, "-_.", 63)) return;
  fail_value(key, text, "a label's value: up to 63 letters, digits, and - _ . between them");
}

}  // namespace ferry::tool
