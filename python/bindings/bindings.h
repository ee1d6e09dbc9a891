// What each source here adds to the module.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "ckpt/base/error.h"

namespace ferry::python {

/// Has Python's end wait for the module's threads (without_gil.h).
void bind_end(nanobind::module_& module);

/// Makes the library's errors exceptions of ferry/errors.py.
void bind_errors(nanobind::module_& module);

/// ferry.Array.
void bind_array(nanobind::module_& module);

/// ferry.Tensor, and what reads.
void bind_reader(nanobind::module_& module);
void bind_checkpoint(nanobind::module_& module);

/// What operations return.
void bind_reports(nanobind::module_& module);
void bind_inspect_report(nanobind::module_& module);
void bind_estimate(nanobind::module_& module);

void bind_operations(nanobind::module_& module);

void bind_groups(nanobind::module_& module);
void bind_saving(nanobind::module_& module);

/// An option of the library as a keyword of Python: "optimizer='none'", "tensor=2".
std::string spell_keyword(const OptionName& option);
/// A message of the library with its options so.
std::string in_keywords(std::string_view message);

}  // namespace ferry::python
