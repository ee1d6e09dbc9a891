// The library's errors as exceptions of ferry/errors.py, with options in Python's words.
#include <exception>
#include <string>
#include <typeinfo>

#include "ckpt/base/error.h"
#include "python/bindings/bindings.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

nb::object text_or_none(std::string_view text) { return text.empty() ? nb::none() : to_str(text); }

void raise(const Error& error) {
  // An error of kind cancelled comes from another rank or from stop(); Ctrl-C in this process is
  // raised by its handler.
  const std::string message = in_keywords(error.what());
  const nb::object made =
      nb::module_::import_("ferry.errors")
          .attr("_of_kind")(to_str(name(error.kind())), to_str(message), text_or_none(error.path()),
                            text_or_none(hint_of(message)));
  PyErr_SetObject(made.type().ptr(), made.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    raise(error);
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError, "a value is of another type than what was expected");
  }
}

}  // namespace

std::string in_keywords(std::string_view message) {
  return spell_options(message, [](const OptionName& option) {
    return std::optional<std::string>(spell_keyword(option));
  });
}

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace ferry::python
