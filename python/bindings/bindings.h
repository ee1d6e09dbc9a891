// What each source here adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace ferry::python {

/// Makes the library's errors exceptions of ferry/errors.py.
void bind_errors(nanobind::module_& module);

void bind_operations(nanobind::module_& module);

void bind_groups(nanobind::module_& module);
void bind_saving(nanobind::module_& module);

}  // namespace ferry::python
