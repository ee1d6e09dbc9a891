// ferry._ferry: the library for Python. python/ferry has what users see of it.
#include "python/bindings/bindings.h"

NB_MODULE(_ferry, module) {
  module.attr("__version__") = FERRY_VERSION;
  ferry::python::bind_errors(module);
  ferry::python::bind_operations(module);
  ferry::python::bind_groups(module);
  ferry::python::bind_saving(module);
}
