// The library's errors as exceptions of ferry/errors.py, with options in Python's words.
#include <nanobind/stl/string.h>

#include <exception>
#include <optional>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/base/option_name.h"
#include "python/bindings/bindings.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

/// "optimizer='none'", "tensor=2"
std::optional<std::string> as_keyword(const OptionName& option) {
  std::string text(option.name);
  if (option.value.empty()) return text;
  return text + "=" +
         nb::cast<std::string>(nb::repr(nb::str(option.value.data(), option.value.size())));
}

void raise(const Error& error) {
  if (error.kind() == ErrorKind::cancelled) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return;
  }
  const nb::object made = nb::module_::import_("ferry.errors")
                              .attr("_of_kind")(std::string(name(error.kind())),
                                                spell_options(error.what(), as_keyword));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    raise(error);
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace ferry::python
