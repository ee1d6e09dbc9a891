// Objects that checkpoints store next to tensors, as values of Python.
#pragma once

#include <nanobind/nanobind.h>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry::python {

/// Plain values as Python's own; argparse.Namespace as types.SimpleNamespace; an enum or path as
/// its value; classes and functions by name, and instances of other classes, as ferry/objects.py
/// has them; tensors whose storages are held as Array, others by dtype and shape. No code of the
/// pickle is run. What is shared in the document is shared in Python.
nanobind::object to_python(const LoadedValue& loaded);

/// An object of a catalog with its tensors, read without the GIL.
nanobind::object read_python_object(const Catalog& catalog, const Object& object);

}  // namespace ferry::python
