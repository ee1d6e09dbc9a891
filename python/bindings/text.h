// Texts and words of the library as Python's str, in place of nanobind/stl/string.h.
//
// Names of files and tensors may hold any bytes: what is not UTF-8 becomes the surrogates that
// Python itself uses for it (os.fsdecode), and is the same bytes again on the way back.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"

namespace ferry::python {

nanobind::object to_str(std::string_view text);

/// "model" or "optimizer".
inline std::string role_name(Role role) { return role == Role::model ? "model" : "optimizer"; }

/// False, with no error of Python's set, for what is not a str.
bool from_str(nanobind::handle value, std::string& text) noexcept;

}  // namespace ferry::python

namespace nanobind::detail {

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    return ferry::python::from_str(source, value);
  }
  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) {
    return ferry::python::to_str(text).release();
  }
};

template <>
struct type_caster<std::string_view> {
  NB_TYPE_CASTER(std::string_view, const_name("str"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!ferry::python::from_str(source, text)) return false;
    value = text;
    return true;
  }
  static handle from_cpp(std::string_view view, rv_policy, cleanup_list*) {
    return ferry::python::to_str(view).release();
  }

 private:
  std::string text;
};

// Words of the library, in one direction.
template <typename Word>
struct word_caster {
  NB_TYPE_CASTER(Word, const_name("str"))

  static handle from_cpp(Word word, rv_policy, cleanup_list*) {
    return ferry::python::to_str(ferry::name(word)).release();
  }
};
template <>
struct type_caster<ferry::Format> : word_caster<ferry::Format> {};
template <>
struct type_caster<ferry::OptimizerLayout> : word_caster<ferry::OptimizerLayout> {};

/// safetensors' spelling, "BF16".
template <>
struct type_caster<ferry::DType> {
  NB_TYPE_CASTER(ferry::DType, const_name("str"))

  static handle from_cpp(ferry::DType dtype, rv_policy, cleanup_list*) {
    return ferry::python::to_str(ferry::safetensors_name(dtype)).release();
  }
};

}  // namespace nanobind::detail
