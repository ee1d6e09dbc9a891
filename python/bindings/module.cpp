// ferry._ferry: the library for Python. python/ferry has what users see of it.
#include "python/bindings/bindings.h"

NB_MODULE(_ferry, module) {
  module.attr("_version") = FERRY_VERSION;
  // What a program keeps until its end is not a leak: frameworks keep arrays in variables of
  // modules.
  nanobind::set_leak_warnings(false);
  ferry::python::bind_end(module);
  ferry::python::bind_errors(module);
  ferry::python::bind_array(module);
  ferry::python::bind_reports(module);
  ferry::python::bind_inspect_report(module);
  ferry::python::bind_estimate(module);
  ferry::python::bind_reader(module);
  ferry::python::bind_checkpoint(module);
  ferry::python::bind_operations(module);
  ferry::python::bind_groups(module);
  ferry::python::bind_saving(module);
}
