// convert(), reshard(), verify() and the others.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ops/verify.h"
#include "python/bindings/bindings.h"
#include "python/bindings/record.h"
#include "python/bindings/running.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

}  // namespace

void bind_operations(nb::module_& module) {
  Record<Problem>(module, "Problem", "Something that is wrong with a checkpoint.")
      .field("file", &Problem::file,
             "Inside the checkpoint's folder; empty: the checkpoint as a whole.")
      .field("offset", &Problem::offset)
      .field("bytes", &Problem::bytes)
      .field("holds", &Problem::holds)
      .field("what", &Problem::what);
  Record<VerifyReport>(module, "VerifyReport", "What verify() found.")
      .field("path", &VerifyReport::path)
      .field("format", &VerifyReport::format)
      .field("iteration", &VerifyReport::iteration)
      .field("problems", &VerifyReport::problems)
      .field("notes", &VerifyReport::notes);
  module.def("verify", [](const std::string& path, VerifyOptions& options, nb::object progress) {
    return interruptibly(progress, options.engine, [&] { return verify(path, options); });
  });
  nb::class_<VerifyOptions>(module, "VerifyOptions")
      .def(nb::init<>())
      .def_rw("values", &VerifyOptions::values);
}

}  // namespace ferry::python
