#include "python/bindings/keywords.h"

#include <fmt/format.h>

#include <map>

#include "ckpt/base/error.h"
#include "ckpt/base/size_text.h"
#include "python/bindings/bindings.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

struct Spelling {
  std::string keyword, word;
};

// By member and value; made once, as the module is imported.
std::map<std::pair<std::string, std::string>, Spelling>& spellings() {
  static std::map<std::pair<std::string, std::string>, Spelling> all;
  return all;
}

// By member: whether it is a flag in one function, and whether it is something else in another.
struct Kinds {
  bool flag = false, other = false;
};
std::map<std::string, Kinds, std::less<>>& kinds() {
  static std::map<std::string, Kinds, std::less<>> all;
  return all;
}

// The text of a str or path; false for anything else. Throws what a path's own function raises, and
// UnicodeEncodeError for halves of surrogate pairs, which no name of a file has.
bool is_text(nb::handle value, std::string& text) {
  nb::object path = nb::steal(PyOS_FSPath(value.ptr()));
  if (!path.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  if (nb::isinstance<nb::str>(path)) {
    path = nb::steal(PyUnicode_AsEncodedString(path.ptr(), "utf-8", "surrogateescape"));
    if (!path.is_valid()) throw nb::python_error();
  }
  const auto bytes = nb::cast<nb::bytes>(path);
  text.assign(bytes.c_str(), bytes.size());
  return true;
}

template <typename Number>
void take_number(const Argument& argument, const char* expected, Number& number) {
  // bool is an int in Python, and a mistake here.
  const bool is_bool = PyBool_Check(argument.value.ptr());
  if (!is_bool && nb::try_cast(argument.value, number)) return;
  if (is_bool || PyLong_Check(argument.value.ptr()) == 0) argument.refuse(expected);
  fail(ErrorKind::invalid, "{}={} is out of range", argument.name,
       nb::cast<std::string>(nb::repr(argument.value)));
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

// The N of "keep_last=N".
bool is_placeholder(std::string_view text) {
  return text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z';
}

std::string literal(std::string_view text) {
  if (is_number(text) || is_placeholder(text)) return std::string(text);
  return nb::cast<std::string>(nb::repr(to_str(text)));
}

}  // namespace

void Argument::refuse(std::string_view expected) const {
  const auto type = nb::cast<std::string>(value.type().attr("__name__"));
  throw nb::type_error(fmt::format("{}: expected {}, not {}", name, expected, type).c_str());
}

void take(const Argument& argument, std::string& text) {
  if (!is_text(argument.value, text)) argument.refuse("str or os.PathLike");
  if (text.find('\0') != std::string::npos) {
    fail(ErrorKind::invalid, "{}: holds a null character, which no name can", argument.name);
  }
}

void take(const Argument& argument, bool& flag) {
  if (!PyBool_Check(argument.value.ptr())) argument.refuse("bool");
  flag = nb::cast<bool>(argument.value);
}

void take(const Argument& argument, int64_t& number) { take_number(argument, "int", number); }

void take(const Argument& argument, int& number) { take_number(argument, "int", number); }

void take(const Argument& argument, double& number) { take_number(argument, "float", number); }

void take(const Argument& argument, uint64_t& bytes) {
  std::string text;
  if (!from_str(argument.value, text)) {
    return take_number(argument, "a size: int (bytes, not negative) or str", bytes);
  }
  const std::optional<uint64_t> size = size_in_bytes(text);
  if (!size) {
    fail(ErrorKind::invalid, "{}={} is not a size; write {}", argument.name, literal(text),
         kSizeForms);
  }
  bytes = *size;
}

void take(const Argument& argument, DType& dtype) {
  // torch.dtype prints as "torch.bfloat16"; NumPy's scalar types have a __name__, dtypes a name.
  std::string text;
  if (!from_str(argument.value, text)) {
    if (argument.value.is(&PyFloat_Type)) {  // float64, as NumPy and PyTorch read it
      text = "float64";
    } else if (nb::hasattr(argument.value, "name")) {
      text = nb::cast<std::string>(argument.value.attr("name"));
    } else if (nb::hasattr(argument.value, "__name__")) {
      text = nb::cast<std::string>(argument.value.attr("__name__"));
    } else {
      text = nb::cast<std::string>(nb::str(argument.value));
    }
  }
  constexpr std::string_view kModule = "torch.";
  const std::string_view name =
      std::string_view(text).substr(text.starts_with(kModule) ? kModule.size() : 0);
  const std::optional<DType> known = dtype_from_text(name);
  if (!known) {
    fail(ErrorKind::invalid, "{}={} is not a dtype; write one such as 'bf16', 'F32' or 'float16'",
         argument.name, literal(text));
  }
  dtype = *known;
}

void take(const Argument& argument, CoreRelease& release) {
  std::string text;
  if (!from_str(argument.value, text)) argument.refuse("str, such as '0.16'");
  release = parse_core_release(text);
}

void take(const Argument& argument, std::vector<std::string>& texts) {
  texts.clear();
  std::string one;
  if (is_text(argument.value, one)) {
    texts.push_back(one);
    return;
  }
  if (!nb::hasattr(argument.value, "__iter__")) argument.refuse("str or a sequence of them");
  for (const nb::handle element : argument.value) {
    take(Argument{argument.name, element}, texts.emplace_back());
  }
}

void take(const Argument& argument, std::vector<int64_t>& numbers) {
  numbers.clear();
  if (!nb::hasattr(argument.value, "__iter__")) {
    take(argument, numbers.emplace_back());
    return;
  }
  for (const nb::handle element : argument.value) {
    take(Argument{argument.name, element}, numbers.emplace_back());
  }
}

void take(const Argument& argument, std::vector<Rename>& renames) {
  renames.clear();
  const bool is_mapping = nb::hasattr(argument.value, "items");
  if (!is_mapping && !nb::hasattr(argument.value, "__iter__")) {
    argument.refuse("a dict of old and new names");
  }
  const nb::object pairs =
      is_mapping ? nb::object(argument.value.attr("items")()) : nb::borrow(argument.value);
  for (const nb::handle pair : pairs) {
    if (!nb::isinstance<nb::tuple>(pair) || nb::len(pair) != 2) {
      argument.refuse("a dict of old and new names");
    }
    Rename& rename = renames.emplace_back();
    take(Argument{argument.name, pair[0]}, rename.first);
    take(Argument{argument.name, pair[1]}, rename.second);
  }
}

nb::object show(const std::string& text) { return to_str(text); }
nb::object show(bool flag) { return nb::bool_(flag); }
nb::object show(int64_t number) { return nb::int_(number); }
nb::object show(int number) { return nb::int_(number); }
nb::object show(double number) { return nb::float_(number); }
nb::object show(uint64_t bytes) { return nb::int_(bytes); }
nb::object show(const CoreRelease& release) { return to_str(to_string(release)); }

void check_not_negative(const Argument& argument, double number) {
  if (number >= 0) return;
  fail(ErrorKind::invalid, "{}={}: must not be negative", argument.name,
       nb::cast<std::string>(nb::repr(argument.value)));
}

void take_iteration(const Argument& argument, std::string& iteration) {
  if (from_str(argument.value, iteration)) {
    if (iteration.empty()) fail(ErrorKind::invalid, "{}='' names no iteration", argument.name);
    return;
  }
  int64_t number = 0;
  take_number(argument, "int or 'release'", number);
  iteration = std::to_string(number);
}

size_t choose(const Argument& argument, const std::vector<const char*>& words) {
  std::string text;
  if (!from_str(argument.value, text)) argument.refuse("str");
  for (size_t i = 0; i < words.size(); ++i) {
    if (text == words[i]) return i;
  }
  std::vector<std::string> literals;
  for (const char* word : words) literals.push_back(literal(word));
  fail(ErrorKind::invalid, "{}={} is none of its values; use {}", argument.name, literal(text),
       fmt::join(literals, ", "));
}

void note_spelling(std::string_view member, std::string_view value, std::string keyword,
                   std::string word) {
  spellings()[{std::string(member), std::string(value)}] = {std::move(keyword), std::move(word)};
}

void note_kind(std::string_view member, bool is_flag) {
  Kinds& kind = kinds()[std::string(member)];
  (is_flag ? kind.flag : kind.other) = true;
}

std::string spell_keyword(const OptionName& option) {
  const auto find = [&](std::string_view value) {
    const auto at = spellings().find({std::string(option.name), std::string(value)});
    return at == spellings().end() ? nullptr : &at->second;
  };
  const Spelling* plain = find({});
  std::string name = plain == nullptr ? std::string(option.name) : plain->keyword;
  if (option.value.empty()) {
    const auto kind = kinds().find(option.name);
    const bool is_flag = kind != kinds().end() && kind->second.flag && !kind->second.other;
    return is_flag ? name + "=True" : name;
  }
  const Spelling* spelling = find(option.value);
  return name + "=" + literal(spelling == nullptr ? option.value : spelling->word);
}

}  // namespace ferry::python
