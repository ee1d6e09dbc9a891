// Structs of options as keyword arguments of functions of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/group/group.h"
#include "ckpt/megatron/model/target_options.h"
#include "ops/write_options.h"
#include "python/bindings/text.h"

namespace ferry::python {

/// An argument of a function, for messages: "memory".
struct Argument {
  std::string_view name;
  nanobind::handle value;

  /// Throws TypeError: what was expected, and what there is.
  [[noreturn]] void refuse(std::string_view expected) const;
};

// Each takes what Python gives into a member. TypeError for a value of another type, invalid for
// one that is none of those that are possible.
void take(const Argument& argument, std::string& text);  // str or os.PathLike
void take(const Argument& argument, bool& flag);
void take(const Argument& argument, int64_t& number);
void take(const Argument& argument, int& number);
void take(const Argument& argument, double& number);
void take(const Argument& argument, uint64_t& bytes);  // int, or "2GiB"
void take(const Argument& argument, DType& dtype);     // "bf16", torch.bfloat16, numpy.float32
void take(const Argument& argument, CoreRelease& release);
void take(const Argument& argument, std::vector<std::string>& texts);  // one, or a sequence
void take(const Argument& argument, std::vector<int64_t>& numbers);
void take(const Argument& argument, std::vector<Rename>& renames);  // a mapping, or pairs
void take(const Argument& argument, std::shared_ptr<Group>& group);
template <typename T>
void take(const Argument& argument, std::optional<T>& value) {
  take(argument, value.emplace());
}

// A member as Python shows it; None for what is absent or of no simple type.
nanobind::object show(const std::string& text);
nanobind::object show(bool flag);
nanobind::object show(int64_t number);
nanobind::object show(int number);
nanobind::object show(double number);
nanobind::object show(uint64_t bytes);
nanobind::object show(const CoreRelease& release);
template <typename T>
nanobind::object show(const T&) {
  return nanobind::none();
}

/// An iteration of a run: an int, or its name.
void take_iteration(const Argument& argument, std::string& iteration);

/// invalid for a number that was taken and is negative, or no number.
void check_not_negative(const Argument& argument, double number);
inline void check_not_negative(const Argument& argument, const std::optional<double>& number) {
  if (number) check_not_negative(argument, *number);
}

/// Words of an enum, first that of the default.
template <typename Value>
using Words = std::vector<std::pair<const char*, Value>>;

/// Which of `words` it is.
size_t choose(const Argument& argument, const std::vector<const char*>& words);

/// Notes that a member is a flag, False by default, or is not: in messages the former is
/// "name=True".
void note_kind(std::string_view member, bool is_flag);

/// Notes that messages call the member `member` of an options struct by a keyword and a value of it
/// by a word, each where they differ.
void note_spelling(std::string_view member, std::string_view value, std::string keyword,
                   std::string word);

/// The keywords of a function that takes an options struct T.
template <typename T>
class Keywords {
 public:
  /// `path`: of the member inside T; `member` returns it. The keyword is the last part of the path
  /// where none is given.
  template <typename Member>
  Keywords& add(const char* path, Member member, const char* keyword = nullptr) {
    T defaults;
    bool is_flag = false;
    if constexpr (std::is_same_v<std::invoke_result_t<Member, T&>, bool&>) {
      is_flag = !member(defaults);
    }
    note_kind(last_part(path), is_flag);
    return add_as(
        path, keyword, show(member(defaults)),
        [member](const Argument& argument, T& options) { take(argument, member(options)); });
  }

  /// The same for a number that must not be negative.
  template <typename Member>
  Keywords& add_size(const char* path, Member member, const char* keyword = nullptr) {
    note_kind(last_part(path), false);
    T defaults;
    return add_as(path, keyword, show(member(defaults)),
                  [member](const Argument& argument, T& options) {
                    take(argument, member(options));
                    check_not_negative(argument, member(options));
                  });
  }

  Keywords& add_iteration(const char* path, std::string& (*member)(T&),
                          const char* keyword = nullptr) {
    return add_as(path, keyword, nanobind::none(), [member](const Argument& argument, T& options) {
      take_iteration(argument, member(options));
    });
  }

  template <typename Member, typename Value>
  Keywords& add_words(const char* path, Member member, Words<Value> words,
                      const char* keyword = nullptr) {
    T defaults;
    nanobind::object by_default = nanobind::none();
    std::vector<const char*> names;
    for (const auto& [name, value] : words) {
      names.push_back(name);
      if (value == member(defaults)) by_default = show(std::string(name));
    }
    note_kind(last_part(path), false);
    return add_as(path, keyword, by_default, [=](const Argument& argument, T& options) {
      member(options) = words[choose(argument, names)].second;
    });
  }

  /// A member of two values that reads as a bool.
  template <typename Member, typename Value>
  Keywords& add_flag(const char* path, Member member, Value if_true, Value if_false) {
    T defaults;
    note_kind(last_part(path), false);
    return add_as(path, nullptr, show(member(defaults) == if_true),
                  [=](const Argument& argument, T& options) {
                    bool flag = false;
                    take(argument, flag);
                    member(options) = flag ? if_true : if_false;
                  });
  }

  /// Sets the members that `given` names; None stands for a default. TypeError for names of none.
  void take_all(nanobind::dict given, T& options) const {
    for (const auto& [key, value] : given) {
      const auto name = nanobind::cast<std::string>(key);
      const Row* row = find(name);
      if (row == nullptr) {
        throw nanobind::type_error(("unexpected keyword argument '" + name + "'").c_str());
      }
      if (!value.is_none()) row->take({name, value}, options);
    }
  }

  /// Member -> keyword.
  nanobind::dict names() const {
    nanobind::dict names;
    for (const Row& row : rows_) names[row.path.c_str()] = row.keyword;
    return names;
  }

  /// Keyword -> default.
  nanobind::dict defaults() const {
    nanobind::dict defaults;
    for (const Row& row : rows_) defaults[row.keyword.c_str()] = row.by_default;
    return defaults;
  }

 private:
  struct Row {
    std::string path, keyword;
    nanobind::object by_default;
    std::function<void(const Argument&, T&)> take;
  };

  static std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  Keywords& add_as(std::string path, const char* keyword, nanobind::object by_default,
                   std::function<void(const Argument&, T&)> take_value) {
    const std::string member = last_part(path);
    // Where a keyword says of which of two, as "iteration_a" does, messages do not.
    if (keyword != nullptr && !std::string_view(keyword).starts_with(member + "_")) {
      note_spelling(member, {}, keyword, {});
    }
    rows_.push_back({path, keyword != nullptr ? keyword : member, std::move(by_default),
                     std::move(take_value)});
    return *this;
  }

  const Row* find(std::string_view keyword) const {
    for (const Row& row : rows_) {
      if (row.keyword == keyword) return &row;
    }
    return nullptr;
  }

  std::vector<Row> rows_;
};

/// The path of a member and a function that returns it, as Keywords::add takes them.
#define FERRY_MEMBER(Options, path) \
#path, [](Options & options) -> auto& { return options.path; }

}  // namespace ferry::python
