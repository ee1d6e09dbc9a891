#include "python/bindings/values.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "python/bindings/array.h"
#include "python/bindings/text.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// Counts against Python's limit of recursion, which a deep document exceeds as RecursionError.
class Deeper {
 public:
  Deeper() {
    if (Py_EnterRecursiveCall(" while a stored object is read") != 0) throw nb::python_error();
  }
  ~Deeper() { Py_LeaveRecursiveCall(); }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
};

// Copies a strided view of a storage, axis by axis.
void gather(const StoredTensor& tensor, const std::string& storage, size_t axis, int64_t offset,
            std::byte*& into) {
  const int64_t size = size_bytes(tensor.dtype);
  if (axis == tensor.shape.size()) {
    std::memcpy(into, storage.data() + offset * size, static_cast<size_t>(size));
    into += size;
    return;
  }
  for (int64_t i = 0; i < tensor.shape[axis]; ++i) {
    gather(tensor, storage, axis + 1, offset + i * tensor.strides[axis], into);
  }
}

// Whether every element of the view is inside the storage.
bool is_inside(const StoredTensor& tensor, const std::string& storage) {
  int64_t last = tensor.storage_offset;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] == 0) return true;
    if (tensor.strides[axis] < 0) return false;
    last += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  const auto elements = static_cast<int64_t>(storage.size()) / size_bytes(tensor.dtype);
  return tensor.storage_offset >= 0 && last < elements;
}

class Converter {
 public:
  explicit Converter(const LoadedValue& loaded)
      : document_(loaded.document), module_(nb::module_::import_("ferry.objects")) {}

  nb::object convert(const Value& value) {
    const auto known = made_.find(value.node());
    if (known != made_.end()) return known->second;
    const Deeper deeper;
    return keep(value, make(value));
  }

 private:
  nb::object make(const Value& value) {
    switch (value.kind()) {
      case ValueKind::none:
        return nb::none();
      case ValueKind::boolean:
        return nb::bool_(*value.boolean());
      case ValueKind::integer:
        return nb::int_(*value.integer());
      case ValueKind::real:
        return nb::float_(*value.real());
      case ValueKind::big_integer:
        return nb::steal(PyLong_FromString(value.text().c_str(), nullptr, 0));
      case ValueKind::string:
        return to_str(value.text());
      case ValueKind::bytes:
        return nb::bytes(value.text().data(), value.text().size());
      case ValueKind::list:
        return list(value);
      case ValueKind::tuple:
        return nb::tuple(items(value));
      case ValueKind::set:
        return set(value);
      case ValueKind::dict:
        return dict(value);
      case ValueKind::global:
        return module_.attr("Global")(to_str(value.text()));
      case ValueKind::object:
        return object(value);
      case ValueKind::tensor:
        return tensor(*value.tensor());
    }
    return nb::none();
  }

  // Before its content is made, for what may contain itself.
  template <typename Made>
  Made keep(const Value& value, Made made) {
    made_.try_emplace(value.node(), made);
    return made;
  }

  nb::list items(const Value& value) {
    nb::list made;
    for (size_t i = 0; i < value.size(); ++i) made.append(convert(value[i]));
    return made;
  }

  nb::object list(const Value& value) {
    nb::list made = keep(value, nb::list());
    for (size_t i = 0; i < value.size(); ++i) made.append(convert(value[i]));
    return made;
  }

  // A list where elements have no hash.
  nb::object set(const Value& value) {
    nb::list elements = items(value);
    nb::object made = nb::steal(PySet_New(elements.ptr()));
    if (made.is_valid()) return made;
    PyErr_Clear();
    return elements;
  }

  nb::object dict(const Value& value) {
    nb::dict made = keep(value, nb::dict());
    for (size_t i = 0; i < value.pair_count(); ++i) {
      const nb::object key = convert(value.pair_key(i)), member = convert(value.pair_value(i));
      if (PyDict_SetItem(made.ptr(), key.ptr(), member.ptr()) == 0) continue;
      PyErr_Clear();  // the key has no hash
      made[nb::str(key)] = member;
    }
    return made;
  }

  nb::object object(const Value& value) {
    if (const auto text = value.string()) return to_str(*text);
    if (const auto number = value.integer()) return nb::int_(*number);
    if (value.text().starts_with("pathlib.") && value.size() > 0) {
      return nb::module_::import_("os.path").attr("join")(*nb::tuple(items(value)));
    }
    const bool is_namespace = value.text() == "argparse.Namespace";
    nb::object made = is_namespace ? module_.attr("SimpleNamespace")()
                                   : module_.attr("Object")(to_str(value.text()));
    made = keep(value, made);
    for (size_t i = 0; i < value.pair_count(); ++i) {
      const nb::object key = convert(value.pair_key(i));
      made.attr("__dict__")[nb::str(key)] = convert(value.pair_value(i));
    }
    if (!is_namespace) made.attr("class_arguments") = nb::tuple(items(value));
    return made;
  }

  nb::object tensor(const StoredTensor& tensor) {
    const auto storage = document_->storages.find(tensor.storage_key);
    if (storage == document_->storages.end() || tensor.math.any() ||
        !is_inside(tensor, storage->second)) {
      return module_.attr("TensorInfo")(to_str(safetensors_name(tensor.dtype)),
                                        nb::tuple(nb::cast(tensor.shape)));
    }
    Array array = new_array(tensor.dtype, tensor.shape);
    std::byte* into = array.bytes.data();
    gather(tensor, storage->second, 0, tensor.storage_offset, into);
    return nb::cast(std::move(array));
  }

  std::shared_ptr<const Document> document_;
  nb::module_ module_;
  std::unordered_map<uint32_t, nb::object> made_;
};

bool has_tensors(const LoadedValue& loaded) {
  return std::ranges::any_of(reachable_nodes(loaded.value), [&](uint32_t node) {
    return loaded.document->root_at(node).kind() == ValueKind::tensor;
  });
}

LoadedValue read_whole(const Catalog& catalog, const Object& object) {
  LoadedValue loaded = read_object(catalog, object);
  return has_tensors(loaded) ? with_storages(catalog, object, loaded, std::span(&loaded.value, 1))
                             : loaded;
}

}  // namespace

nb::object to_python(const LoadedValue& loaded) {
  if (!loaded.document) return nb::none();
  return Converter(loaded).convert(loaded.value);
}

nb::object read_python_object(const Catalog& catalog, const Object& object) {
  LoadedValue loaded;
  {
    const WithoutGil without;
    loaded = read_whole(catalog, object);
  }
  return to_python(loaded);
}

}  // namespace ferry::python
