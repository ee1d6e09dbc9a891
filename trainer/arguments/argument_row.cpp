#include "trainer/arguments/argument_row.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "convert/model/mismatch.h"
#include "trainer/arguments/checks.h"

namespace ferry {
namespace {

template <typename Member>
using MemberOf =
    std::remove_reference_t<decltype(std::declval<TrainArguments&>().*std::declval<Member>())>;

template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

// Members that print as None hold an empty string or list.
template <typename T>
ArgumentValue value_from(const T& held, bool none_when_empty) {
  if constexpr (std::is_same_v<T, LayerPattern>) {
    return std::visit([](const auto& each) -> ArgumentValue { return each; }, held);
  } else if constexpr (kIsOptional<T>) {
    return held ? ArgumentValue(*held) : ArgumentValue();
  } else if constexpr (kIsList<T> || std::is_same_v<T, std::string>) {
    return held.empty() && none_when_empty ? ArgumentValue() : ArgumentValue(held);
  } else {
    return held;
  }
}

// A value converted to T; a list of one element converts like that element.
template <typename T>
T converted(const ArgumentValue& value) {
  if constexpr (kIsOptional<T>) {
    if (value.index() == 0) return std::nullopt;
    return converted<typename T::value_type>(value);
  } else if constexpr (std::is_same_v<T, LayerPattern>) {
    if (const auto* number = std::get_if<int64_t>(&value)) return *number;
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return *list;
    return {};
  } else if constexpr (kIsList<T>) {
    if (value.index() == 0) return {};
    if (const auto* list = std::get_if<T>(&value)) return *list;
    return {converted<typename T::value_type>(value)};
  } else {
    if (value.index() == 0) return {};
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
    }
    if (const T* held = std::get_if<T>(&value)) return *held;
    fail(ErrorKind::internal, "a value of the wrong type for its argument");
  }
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view each = words.substr(0, words.find(' '));
    if (each == word) return true;
    words.remove_prefix(std::min(words.size(), each.size() + 1));
  }
  return false;
}

// "1..": from 1 to the largest size.
void check_range(const ArgumentRow& row, int64_t value) {
  const std::string_view range = row.choices;
  int64_t least = 0, most = kMostSize;
  std::from_chars(range.data(), range.data() + range.size(), least);
  const char* upper = range.data() + range.find("..") + 2;
  std::from_chars(upper, range.data() + range.size(), most);
  check_size(row.flag(), value, least, most);
}

void check_choices(const ArgumentRow& row, const ArgumentValue& value) {
  if (row.choices.empty() || value.index() == 0) return;
  if (row.choices.find("..") != std::string_view::npos) {
    return check_range(row, std::get<int64_t>(value));
  }
  const auto check = [&](std::string_view word) {
    if (has_word(row.choices, word)) return;
    fail(ErrorKind::invalid, "{}: '{}' is not one of: {}", row.flag(), word, row.choices);
  };
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& word : *list) check(word);
  } else if (row.kind == ArgumentKind::dtype) {
    check(dtype_word(python_text(row.kind, value)));
  } else {
    check(python_text(row.kind, value));
  }
}

// As in Megatron-LM, numbers compare equal whatever their type, and a list of one element equals
// it.
bool same_value(const ArgumentRow& row, const ArgumentValue& a, const ArgumentValue& b) {
  if (a == b) return true;
  if (row.kind == ArgumentKind::real && a.index() > 1 && b.index() > 1) {
    return converted<double>(a) == converted<double>(b);
  }
  if (row.kind == ArgumentKind::reals) {
    return converted<std::vector<double>>(a) == converted<std::vector<double>>(b);
  }
  if (row.kind == ArgumentKind::texts && row.initial != "None" && !row.initial.starts_with('[')) {
    return converted<std::vector<std::string>>(a) == converted<std::vector<std::string>>(b);
  }
  return false;
}

// Megatron-LM unwraps lists of one element.
ArgumentValue without_lone_list(const ArgumentRow& row, ArgumentValue value) {
  if (row.initial == "None" || row.initial.starts_with('[')) return value;
  if (const auto* reals = std::get_if<std::vector<double>>(&value); reals && reals->size() == 1) {
    return ArgumentValue(reals->front());
  }
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value);
      texts && texts->size() == 1) {
    return ArgumentValue(texts->front());
  }
  return value;
}

using Index = std::unordered_map<std::string, const ArgumentRow*>;

Index index_of(bool by_flag) {
  Index index;
  for (const ArgumentRow& row : argument_rows()) {
    if (!by_flag) {
      index.emplace(row.name(), &row);
      continue;
    }
    std::string_view flags = row.flags;
    while (!flags.empty()) {
      const std::string_view flag = flags.substr(0, flags.find(' '));
      index.emplace(flag, &row);
      flags.remove_prefix(std::min(flags.size(), flag.size() + 1));
    }
  }
  return index;
}

const ArgumentRow* find(const Index& index, std::string_view key) {
  const auto found = index.find(std::string(key));
  return found == index.end() ? nullptr : found->second;
}

}  // namespace

std::string_view ArgumentRow::enum_prefix() const {
  const bool is_enum =
      kind == ArgumentKind::text && !initial.empty() && initial[0] >= 'A' && initial[0] <= 'Z';
  return is_enum ? initial.substr(0, initial.find('.') + 1) : std::string_view();
}

std::string ArgumentRow::name() const {
  if (!argument_name.empty()) return std::string(argument_name);
  std::string name(flag().substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const std::vector<ArgumentRow>& argument_rows() {
  static const std::vector<ArgumentRow> all = [] {
    std::vector<ArgumentRow> rows;
    const auto add = [&](std::span<const ArgumentRow> part, ArgumentStatus status) {
      for (ArgumentRow row : part) {
        if (row.status == ArgumentStatus::used) row.status = status;
        rows.push_back(row);
      }
    };
    for (const auto part : {model_rows(), parallel_rows(), training_rows(), run_rows(),
                            derived_rows(), fork_rows(), removed_rows()}) {
      add(part, ArgumentStatus::used);
    }
    add(no_effect_rows(), ArgumentStatus::no_effect);
    add(unsupported_rows(), ArgumentStatus::unsupported);
    add(unsupported_family_rows(), ArgumentStatus::unsupported);
    return rows;
  }();
  return all;
}

const ArgumentRow* find_flag(std::string_view flag) {
  static const Index index = index_of(true);
  return find(index, flag);
}

const ArgumentRow* find_argument(std::string_view name) {
  static const Index index = index_of(false);
  return find(index, name);
}

std::string nearest_flag(std::string_view flag) {
  flag = flag.substr(0, 100);  // longer than all of them
  std::string_view nearest;
  size_t least = flag.size() / 3 + 1;
  for (const ArgumentRow& row : argument_rows()) {
    if (row.flags.empty() || row.status == ArgumentStatus::removed) continue;
    const size_t distance = edit_distance(flag, row.flag(), least);
    if (distance >= least) continue;
    least = distance;
    nearest = row.flag();
  }
  return std::string(nearest);
}

ArgumentValue value_of(const TrainArguments& arguments, const ArgumentRow& row) {
  const ArgumentValue initial = parse_initial(row.kind, row.initial);
  if (!row.is_bound()) {
    const auto other = arguments.others.find(row.name());
    return other == arguments.others.end() ? initial : other->second;
  }
  const ArgumentValue value = std::visit(
      [&](auto member) -> ArgumentValue {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return {};
        } else {
          const bool truth_or_none = row.initial == "None";
          const ArgumentValue held = value_from(arguments.*member, truth_or_none);
          // Flags whose default is None, unless they may also be False.
          const bool is_flag = std::is_same_v<decltype(member), bool TrainArguments::*>;
          return is_flag && truth_or_none && held == ArgumentValue(false) ? ArgumentValue() : held;
        }
      },
      row.member);
  return same_value(row, value, initial) ? initial : without_lone_list(row, value);
}

bool is_default(const TrainArguments& arguments, const ArgumentRow& row) {
  return same_value(row, value_of(arguments, row), parse_initial(row.kind, row.initial));
}

void set_value(TrainArguments& arguments, const ArgumentRow& row, ArgumentValue value) {
  const std::string_view prefix = row.enum_prefix();
  if (auto* text = std::get_if<std::string>(&value); text && !prefix.empty()) {
    if (text->starts_with(prefix)) text->erase(0, prefix.size());
  }
  check_choices(row, value);
  if (auto* text = std::get_if<std::string>(&value); text && !prefix.empty()) {
    text->insert(0, prefix);
  }
  if (!row.is_bound()) {
    const bool is_initial = same_value(row, value, parse_initial(row.kind, row.initial));
    if (!is_initial && row.status != ArgumentStatus::no_effect &&
        row.status != ArgumentStatus::derived && row.status != ArgumentStatus::saved) {
      fail(ErrorKind::unsupported,
           "{} is an argument of Megatron-LM that this trainer does not support: leave it out "
           "(default: {})",
           row.flag(), row.initial);
    }
    arguments.others.insert_or_assign(row.name(), std::move(value));
    return;
  }
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
          arguments.*member = converted<MemberOf<decltype(member)>>(value);
        }
      },
      row.member);
}

TrainArguments default_arguments() {
  TrainArguments arguments;
  for (const ArgumentRow& row : argument_rows()) {
    if (!row.is_bound()) continue;
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
            arguments.*member =
                converted<MemberOf<decltype(member)>>(parse_initial(row.kind, row.initial));
          }
        },
        row.member);
  }
  return arguments;
}

}  // namespace ferry
