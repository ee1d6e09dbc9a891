#include "trainer/arguments/argument_value.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/arguments/layer_pattern.h"

namespace ferry {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> real_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !std::isfinite(number)) return std::nullopt;
  return number;
}

int64_t need_whole(std::string_view flag, std::string_view word) {
  if (const auto number = whole_number(word)) return *number;
  fail(ErrorKind::invalid, "{}: '{}' is not a whole number", flag, word);
}

double need_real(std::string_view flag, std::string_view word) {
  if (const auto number = real_number(word)) return *number;
  fail(ErrorKind::invalid, "{}: '{}' is not a number", flag, word);
}

std::vector<int64_t> parse_pair(std::string_view flag, std::string_view text) {
  const std::string_view whole = text;
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    fail(ErrorKind::invalid, "{}: '{}' is not two numbers, as in 127,0", flag, whole);
  }
  std::string_view second = text.substr(comma + 1);
  if (second.starts_with(' ')) second.remove_prefix(1);
  return {need_whole(flag, text.substr(0, comma)), need_whole(flag, second)};
}

struct NumberedWord {
  std::string_view word;
  int number;
};
constexpr std::array<NumberedWord, 5> kSignals = {{{"SIGTERM", SIGTERM},
                                                   {"SIGINT", SIGINT},
                                                   {"SIGHUP", SIGHUP},
                                                   {"SIGUSR1", SIGUSR1},
                                                   {"SIGUSR2", SIGUSR2}}};
// megatron/core/transformer/enums.py
constexpr std::array<NumberedWord, 5> kAttentionBackends = {
    {{"flash", 1}, {"fused", 2}, {"unfused", 3}, {"local", 4}, {"auto", 5}}};
constexpr std::string_view kBackendEnum = "AttnBackend.";
constexpr std::string_view kGraphScopeEnum = "InferenceCudaGraphScope.";

// Words of the command line and the dtypes they stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kDtypes = {
    {{"fp32", "torch.float32"},
     {"bf16", "torch.bfloat16"},
     {"fp16", "torch.float16"},
     {"fp8", "torch.uint8"},
     {"auto", ""}}};

std::string parse_dtype(std::string_view flag, std::string_view word) {
  for (const auto& [known, dtype] : kDtypes) {
    if (known == word) return std::string(dtype);
  }
  fail(ErrorKind::invalid, "{}: '{}' is not one of fp32, bf16, fp16, fp8, auto", flag, word);
}

template <typename T, typename Convert>
std::vector<T> each_of(std::span<const std::string> words, const Convert& convert) {
  std::vector<T> values;
  for (const std::string& word : words) values.push_back(convert(word));
  return values;
}

bool is_list(ArgumentKind kind) {
  return kind == ArgumentKind::integers || kind == ArgumentKind::reals ||
         kind == ArgumentKind::texts;
}

template <typename T>
std::string python_list(const std::vector<T>& items, std::string_view open,
                        std::string_view close) {
  std::string text(open);
  for (const T& item : items) {
    if (text.size() > open.size()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      text += fmt::format("'{}'", item);
    } else if constexpr (std::is_same_v<T, double>) {
      text += python_real(item);
    } else {
      text += fmt::format("{}", item);
    }
  }
  return text += close;
}

}  // namespace

ArgumentValue parse_argument(ArgumentKind kind, std::string_view flag,
                             std::span<const std::string> words) {
  if (kind == ArgumentKind::integers) {
    return each_of<int64_t>(words, [&](const std::string& w) { return need_whole(flag, w); });
  }
  if (kind == ArgumentKind::reals) {
    return each_of<double>(words, [&](const std::string& w) { return need_real(flag, w); });
  }
  if (kind == ArgumentKind::texts) return std::vector<std::string>(words.begin(), words.end());
  const std::string& word = words.front();
  switch (kind) {
    case ArgumentKind::integer:
      return need_whole(flag, word);
    case ArgumentKind::real:
      return need_real(flag, word);
    case ArgumentKind::pattern: {
      if (const auto number = whole_number(word)) return *number;
      return parse_layer_pattern(flag, word);
    }
    case ArgumentKind::pair:
      return parse_pair(flag, word);
    case ArgumentKind::dtype:
      return parse_dtype(flag, word);
    case ArgumentKind::signal:
      signal_number(word);
      return word;
    default:
      return word;
  }
}

ArgumentValue parse_initial(ArgumentKind kind, std::string_view initial) {
  if (initial == "None") return std::monostate();
  switch (kind) {
    case ArgumentKind::flag:
    case ArgumentKind::negated:
    case ArgumentKind::either:
      return initial == "True";
    case ArgumentKind::integer:
    case ArgumentKind::real:
    case ArgumentKind::pattern:
      if (const auto number = whole_number(initial)) return *number;
      return real_number(initial).value_or(0);
    case ArgumentKind::integers:
      return std::vector<int64_t>();
    case ArgumentKind::reals:
      return real_number(initial).value_or(0);
    case ArgumentKind::texts:
      if (!initial.starts_with('[')) return std::string(initial);
      if (initial.size() == 2) return std::vector<std::string>();
      return std::vector<std::string>{std::string(initial.substr(2, initial.size() - 4))};
    default:
      return std::string(initial);
  }
}

ArgumentValue read_argument(ArgumentKind kind, std::string_view name, const Value& value) {
  if (value.is_none()) return std::monostate();
  std::vector<std::string> words;
  const auto add = [&](const Value& item) {
    if (const auto text = item.string()) return words.emplace_back(*text), void();
    if (const auto number = item.integer()) return words.push_back(fmt::to_string(*number));
    if (const auto number = item.real()) return words.push_back(python_real(*number));
    if (item.kind() == ValueKind::global) return words.push_back(item.text());
    fail(ErrorKind::invalid, "{}: not a number, a string or a list of these", name);
  };
  switch (kind) {
    case ArgumentKind::flag:
    case ArgumentKind::negated:
    case ArgumentKind::either:
      if (const auto truth = value.boolean()) return *truth;
      fail(ErrorKind::invalid, "{}: is neither true nor false", name);
    case ArgumentKind::pattern:
    case ArgumentKind::pair:
      if (value.size() > 0 && !value.string()) {
        std::vector<int64_t> numbers;
        for (size_t i = 0; i < value.size(); ++i) {
          const auto number = value[i].integer();
          if (!number) fail(ErrorKind::invalid, "{}: element {} is not a whole number", name, i);
          numbers.push_back(*number);
        }
        return numbers;
      }
      break;
    case ArgumentKind::dtype:
      if (value.kind() == ValueKind::global) return value.text();
      break;
    case ArgumentKind::signal:
      if (const auto number = value.integer()) {
        for (const NumberedWord& each : kSignals) {
          if (each.number == *number) return std::string(each.word);
        }
      }
      break;
    default:
      break;
  }
  if (value.kind() == ValueKind::list || value.kind() == ValueKind::tuple) {
    for (size_t i = 0; i < value.size(); ++i) add(value[i]);
    if (!is_list(kind)) fail(ErrorKind::invalid, "{}: is a list, expected a single value", name);
  } else {
    add(value);
  }
  return parse_argument(kind, name, words);
}

std::string python_real(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string_view dtype_word(std::string_view dtype) {
  for (const auto& [word, known] : kDtypes) {
    if (known == dtype) return word;
  }
  return dtype;
}

int signal_number(std::string_view name) {
  for (const NumberedWord& each : kSignals) {
    if (each.word == name) return each.number;
  }
  fail(ErrorKind::invalid,
       "'{}' is not one of the signals SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2", name);
}

std::string python_text(ArgumentKind kind, const ArgumentValue& value) {
  if (kind == ArgumentKind::signal) return fmt::to_string(signal_number(std::get<4>(value)));
  return std::visit(
      [&](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "None";
        } else if constexpr (std::is_same_v<T, bool>) {
          return held ? "True" : "False";
        } else if constexpr (std::is_same_v<T, double>) {
          return python_real(held);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return held;
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return fmt::to_string(held);
        } else {
          const bool tuple = kind == ArgumentKind::pair;
          return python_list(held, tuple ? "(" : "[", tuple ? ")" : "]");
        }
      },
      value);
}

namespace {

Value python_string(ArgumentKind kind, const std::string& text, Draft& draft) {
  if (kind == ArgumentKind::signal) {
    return draft.call(draft.global("signal.Signals"), {draft.integer(signal_number(text))});
  }
  if (text.starts_with("torch.")) return draft.global(text);
  if (text == fmt::format("{}none", kGraphScopeEnum)) {
    return draft.call(draft.global("megatron.core.transformer.enums.InferenceCudaGraphScope"),
                      {draft.integer(1)});
  }
  if (text.starts_with(kBackendEnum)) {
    for (const NumberedWord& each : kAttentionBackends) {
      if (text.substr(kBackendEnum.size()) != each.word) continue;
      return draft.call(draft.global("megatron.core.transformer.enums.AttnBackend"),
                        {draft.integer(each.number)});
    }
  }
  return draft.string(text);
}

Value python_item(ArgumentKind, std::monostate, Draft& draft) { return draft.none(); }
Value python_item(ArgumentKind, bool truth, Draft& draft) { return draft.boolean(truth); }
Value python_item(ArgumentKind, int64_t number, Draft& draft) { return draft.integer(number); }
Value python_item(ArgumentKind, double number, Draft& draft) { return draft.real(number); }
Value python_item(ArgumentKind kind, const std::string& text, Draft& draft) {
  return python_string(kind, text, draft);
}
template <typename T>
Value python_item(ArgumentKind kind, const std::vector<T>& items, Draft& draft) {
  std::vector<Value> values;
  for (const T& item : items) values.push_back(python_item(kind, item, draft));
  return kind == ArgumentKind::pair ? draft.tuple(values) : draft.list(values);
}

}  // namespace

Value python_value(ArgumentKind kind, const ArgumentValue& value, Draft& draft) {
  return std::visit([&](const auto& held) { return python_item(kind, held, draft); }, value);
}

}  // namespace ferry
