#include "python/bindings/text.h"

namespace ferry::python {

namespace nb = nanobind;

nb::object to_str(std::string_view text) {
  PyObject* const made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

bool from_str(nb::handle value, std::string& text) noexcept {
  if (!PyUnicode_Check(value.ptr())) return false;
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "surrogateescape"));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!bytes.is_valid() || PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0) {
    PyErr_Clear();
    return false;
  }
  text.assign(data, static_cast<size_t>(size));
  return true;
}

}  // namespace ferry::python
