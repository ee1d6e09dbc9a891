#include "python/bindings/saving_tensors.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <unordered_map>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "python/bindings/dlpack.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

nb::object imported(const char* module) {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  return modules.attr("get")(module);
}

/// Classes of libraries that are imported; None of those that are not.
struct Classes {
  nb::object tensor = nb::none(), dtensor = nb::none(), array = nb::none(), shard;
  nb::object shard_of_dtensor;

  Classes() {
    const nb::module_ saving = nb::module_::import_("ferry.saving");
    shard = saving.attr("Shard");
    shard_of_dtensor = saving.attr("_DTensors")();
    if (const nb::object torch = imported("torch"); nb::hasattr(torch, "Tensor")) {
      tensor = torch.attr("Tensor");
      const nb::object module = imported("torch.distributed.tensor");
      if (nb::hasattr(module, "DTensor")) dtensor = module.attr("DTensor");
    }
    if (const nb::object numpy = imported("numpy"); nb::hasattr(numpy, "ndarray")) {
      array = numpy.attr("ndarray");
    }
  }
};

enum class Kind { torch, dtensor, array, shard, other };

bool is_subclass(nb::handle type, nb::handle base) {
  return !base.is_none() && PyObject_IsSubclass(type.ptr(), base.ptr()) == 1;
}

Dims dims_of(nb::handle sequence) {
  Dims dims;
  dims.reserve(nb::len(sequence));
  for (const nb::handle one : sequence) {
    if (!nb::try_cast(one, dims.emplace_back())) {
      throw nb::type_error("a shape and an offset consist of ints");
    }
  }
  return dims;
}

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }
std::string class_of(nb::handle value) {
  const nb::handle type = value.type();
  const std::string module = text_of(type.attr("__module__"));
  return (module == "builtins" ? "" : module + ".") + text_of(type.attr("__qualname__"));
}

template <typename Byte = const std::byte>
Byte* pointer(nb::handle address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<Byte*>(static_cast<uintptr_t>(nb::cast<uint64_t>(address)));
}

/// Shape and offset of a tensor, or of a shard of one.
struct Place {
  Dims shape, offset;
};

class Collector {
 public:
  explicit Collector(CudaStager& stager) : stager_(stager) {}

  void add(const std::string& name, nb::handle value) {
    name_ = &name;
    place_.reset();
    add_value(value);
  }
  GivenTensors take() && { return std::move(given_); }

 private:
  void add_value(nb::handle value) {
    switch (kind_of(value.type())) {
      case Kind::torch:
        return add_torch(nb::borrow(value));
      case Kind::dtensor: {
        const nb::object shard = classes_.shard_of_dtensor(*name_, value);
        return shard.is_none() ? void() : add_shard(shard);
      }
      case Kind::array:
        return add_array(nb::borrow(value));
      case Kind::shard:
        return add_shard(value);
      case Kind::other:
        return add_other(value);
    }
  }

  Kind kind_of(nb::handle type) {
    const auto [at, is_new] = kinds_.try_emplace(type.ptr(), Kind::other);
    if (is_new) at->second = find_kind(type);
    return at->second;
  }
  Kind find_kind(nb::handle type) const {
    if (is_subclass(type, classes_.dtensor)) return Kind::dtensor;
    if (is_subclass(type, classes_.tensor)) {
      // Its own memory is not what it stands for.
      if (nb::hasattr(type, "__tensor_flatten__")) refuse_class(type);
      return Kind::torch;
    }
    if (is_subclass(type, classes_.array)) {
      if (nb::hasattr(type, "mask")) refuse_class(type);
      return Kind::array;
    }
    return is_subclass(type, classes_.shard) ? Kind::shard : Kind::other;
  }
  [[noreturn]] void refuse_class(nb::handle type) const {
    fail(ErrorKind::unsupported,
         "tensor {}: its class {} holds more than one array of numbers; give what it is made of",
         *name_, text_of(type.attr("__qualname__")));
  }

  void add_shard(nb::handle shard) {
    if (place_) fail(ErrorKind::invalid, "tensor {}: a Shard of a Shard", *name_);
    place_ = Place{dims_of(shard.attr("shape")), dims_of(shard.attr("offset"))};
    const nb::object part = shard.attr("tensor");
    if (kind_of(part.type()) == Kind::dtensor) {
      fail(ErrorKind::invalid, "tensor {}: a Shard of a DTensor, which has its own place", *name_);
    }
    add_value(part);
  }

  void add_torch(nb::object tensor) {
    const bool is_cuda = nb::cast<bool>(tensor.attr(is_cuda_));
    if (!is_cuda && !nb::cast<bool>(tensor.attr(is_cpu_))) {
      fail(ErrorKind::unsupported,
           "tensor {} is on device {}: only the CPU's and CUDA's can be saved; give its .cpu()",
           *name_, text_of(tensor.attr("device")));
    }
    const DType dtype = torch_dtype(tensor.attr(dtype_));
    if (!tensor.attr(layout_).is(strided())) {
      fail(ErrorKind::unsupported, "tensor {} is sparse; give its .to_dense()", *name_);
    }
    const auto is = [&](const nb::object& question) {
      return nb::cast<bool>(tensor.attr(question)());
    };
    if (is(is_neg_) || is(is_conj_)) {
      tensor = tensor.attr("detach")().attr("resolve_conj")().attr("resolve_neg")();
    }
    if (!is(is_contiguous_)) tensor = tensor.attr("detach")().attr("contiguous")();
    if (is_cuda) add_stream(nb::cast<int>(tensor.attr("get_device")()));
    Dims shape = dims_of(tensor.attr(shape_));
    check_storage(tensor, dtype, shape);
    add_region(dtype, std::move(shape), pointer(tensor.attr(data_ptr_)()), tensor);
  }

  // A view of a storage that was made smaller has an address, but no memory.
  void check_storage(const nb::object& tensor, DType dtype, const Dims& shape) const {
    const int64_t elements = element_count(shape, *name_);
    if (elements == 0) return;
    const auto first = nb::cast<int64_t>(tensor.attr(storage_offset_)());
    const auto bytes = nb::cast<int64_t>(tensor.attr(storage_)().attr(nbytes_)());
    const int64_t needed =
        checked_multiply(checked_add(first, elements, *name_), size_bytes(dtype), *name_);
    if (bytes >= needed) return;
    fail(ErrorKind::invalid,
         "tensor {}: its storage has {} bytes, of which it needs {}: it was freed, as FSDP does "
         "between uses; save what was gathered or the shards",
         *name_, bytes, needed);
  }

  nb::handle strided() {
    if (!strided_.is_valid()) strided_ = imported("torch").attr("strided");
    return strided_;
  }

  DType torch_dtype(const nb::object& dtype) {
    const auto [at, is_new] = dtypes_.try_emplace(dtype.ptr(), DType::f32);
    if (is_new) {
      std::string text = text_of(dtype);
      if (text.starts_with("torch.")) text.erase(0, 6);
      at->second = dtype_named(text);
    }
    return at->second;
  }
  DType dtype_named(const std::string& text) const { return known(dtype_from_torch(text), text); }
  DType known(const std::optional<DType>& dtype, const std::string& text) const {
    if (!dtype) fail(ErrorKind::unsupported, "tensor {} has elements of type {}", *name_, text);
    return *dtype;
  }

  // torch's current stream of a device: what is queued there comes before the copy.
  void add_stream(int device) {
    if (!devices_.insert(device).second) return;
    const nb::object stream = imported("torch").attr("cuda").attr("current_stream")(device);
    given_.streams.insert({device, nb::cast<uint64_t>(stream.attr("cuda_stream"))});
    given_.on_devices = true;
  }

  void add_array(nb::object array) {
    nb::object dtype = array.attr("dtype");
    const DType type = dtype_named(text_of(dtype.attr("name")));
    if (!nb::cast<bool>(dtype.attr("isnative"))) {
      array = array.attr("astype")(dtype.attr("newbyteorder")("="));
    }
    nb::object interface = array.attr("__array_interface__");
    if (!interface["strides"].is_none()) {
      array = imported("numpy").attr("ascontiguousarray")(array);
      interface = array.attr("__array_interface__");
    }
    const nb::object data = interface["data"];
    add_region(type, dims_of(interface["shape"]), pointer(data[0]), array);
  }

  void add_other(nb::handle value) {
    if (nb::hasattr(value, "__cuda_array_interface__")) return add_cuda_array(value);
    if (nb::hasattr(value, "__dlpack__")) return add_dlpack(value);
    if (PyObject_CheckBuffer(value.ptr()) == 0) {
      fail(ErrorKind::invalid,
           "tensor {} is a {}; give a tensor or an array of torch, NumPy or another library with "
           "__dlpack__ or the buffer protocol; values of other kinds go into objects=, and nested "
           "dicts have to be flattened",
           *name_, class_of(value));
    }
    add_buffer(value);
  }

  void add_cuda_array(nb::handle value) {
    const nb::object interface = value.attr("__cuda_array_interface__");
    const Dims shape = dims_of(interface["shape"]);
    const std::string type = nb::cast<std::string>(interface["typestr"]);
    const bool is_native = !type.empty() && type[0] != '>';
    const DType dtype = known(is_native ? dtype_of_code(type.substr(1)) : std::nullopt, type);
    const nb::object strides = interface.attr("get")("strides");
    if (!strides.is_none()) {
      Dims expected = row_major_strides(shape);
      for (int64_t& one : expected) one *= size_bytes(dtype);
      if (dims_of(strides) != expected) refuse_strides();
    }
    const nb::object data = interface["data"];
    const std::byte* const at = pointer(data[0]);
    if (element_count(shape, *name_) > 0) {
      const std::optional<int> device = stager_.device_of(at);
      const nb::object stream = interface.attr("get")("stream");
      given_.on_devices = given_.on_devices || device;
      if (device && !stream.is_none()) {
        given_.streams.insert({*device, nb::cast<uint64_t>(stream)});
      }
    }
    add_region(dtype, shape, at, value);
  }
  [[noreturn]] void refuse_strides() const {
    fail(ErrorKind::unsupported, "tensor {} is not contiguous; give a contiguous copy", *name_);
  }

  void add_dlpack(nb::handle value) {
    const DlpackTensor tensor(value, *name_, stager_);
    if (!tensor.is_contiguous()) refuse_strides();
    if (const std::optional<int> device = tensor.device()) {
      given_.on_devices = true;
      given_.streams.insert({*device, stager_.stream(*device)});
    }
    add_region(tensor.dtype(), tensor.shape(), tensor.data(), tensor.owner());
  }

  void add_buffer(nb::handle value) {
    const nb::object view = nb::steal(PyMemoryView_FromObject(value.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    const auto format = nb::cast<std::string>(view.attr("format"));
    const auto bytes = nb::cast<int64_t>(view.attr("itemsize"));
    const DType dtype = known(dtype_of_format(format, bytes), format);
    if (!nb::cast<bool>(view.attr("c_contiguous"))) refuse_strides();
    Py_buffer buffer{};
    if (PyObject_GetBuffer(view.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const auto* const data = static_cast<const std::byte*>(buffer.buf);
    PyBuffer_Release(&buffer);  // the view holds the memory
    add_region(dtype, dims_of(view.attr("shape")), data, view);
  }

  // "f4" of NumPy's array interfaces.
  static std::optional<DType> dtype_of_code(const std::string& code) {
    static const std::unordered_map<std::string, DType> kCodes = {
        {"b1", DType::boolean}, {"u1", DType::u8},   {"i1", DType::i8},  {"u2", DType::u16},
        {"i2", DType::i16},     {"u4", DType::u32},  {"i4", DType::i32}, {"u8", DType::u64},
        {"i8", DType::i64},     {"f2", DType::f16},  {"f4", DType::f32}, {"f8", DType::f64},
        {"c8", DType::c64},     {"c16", DType::c128}};
    const auto at = kCodes.find(code);
    return at == kCodes.end() ? std::nullopt : std::optional(at->second);
  }
  // "<f" of the module struct.
  static std::optional<DType> dtype_of_format(std::string format, int64_t bytes) {
    if (!format.empty() && std::string_view("@=<|").find(format[0]) != std::string_view::npos) {
      format.erase(0, 1);
    }
    if (format == "?") return DType::boolean;
    const bool is_complex = format.starts_with("Z") || format == "F" || format == "D";
    if (is_complex) return dtype_of_code(fmt::format("c{}", bytes));
    if (format.size() != 1) return std::nullopt;
    if (std::string_view("efd").find(format[0]) != std::string_view::npos) {
      return dtype_of_code(fmt::format("f{}", bytes));
    }
    if (std::string_view("bhilqn").find(format[0]) != std::string_view::npos) {
      return dtype_of_code(fmt::format("i{}", bytes));
    }
    if (std::string_view("BHILQNc").find(format[0]) != std::string_view::npos) {
      return dtype_of_code(fmt::format("u{}", bytes));
    }
    return std::nullopt;
  }

  void add_region(DType dtype, Dims shape, const std::byte* data, nb::handle owner) {
    given_.owners.append(owner);
    if (!place_) {
      Box whole = Box::whole(shape);
      given_.regions.push_back({*name_, dtype, std::move(shape), {std::move(whole)}, data});
      return;
    }
    if (place_->shape.size() != shape.size()) {
      fail(ErrorKind::invalid, "tensor {}: a Shard of shape {} cannot have a part of shape {}",
           *name_, to_string(place_->shape), to_string(shape));
    }
    const bool is_empty = element_count(shape, *name_) == 0;
    if (is_empty && element_count(place_->shape, *name_) > 0) return;  // this rank has none of it
    given_.regions.push_back(
        {*name_, dtype, place_->shape, {{place_->offset, std::move(shape)}}, data});
  }

  CudaStager& stager_;
  Classes classes_;
  GivenTensors given_;
  const std::string* name_ = nullptr;
  std::optional<Place> place_;
  std::unordered_map<const PyObject*, Kind> kinds_;    // by class
  std::unordered_map<const PyObject*, DType> dtypes_;  // by torch's dtype
  std::set<int> devices_;
  nb::object strided_;
  const nb::object is_cuda_ = nb::str("is_cuda"), is_cpu_ = nb::str("is_cpu"),
                   dtype_ = nb::str("dtype"), layout_ = nb::str("layout"),
                   shape_ = nb::str("shape"), data_ptr_ = nb::str("data_ptr"),
                   is_neg_ = nb::str("is_neg"), is_conj_ = nb::str("is_conj"),
                   is_contiguous_ = nb::str("is_contiguous"), nbytes_ = nb::str("nbytes"),
                   storage_ = nb::str("untyped_storage"),
                   storage_offset_ = nb::str("storage_offset");
};

}  // namespace

GivenTensors given_tensors(nb::handle tensors, CudaStager& stager) {
  Collector collector(stager);
  for (const nb::handle item : items_of("tensors", tensors)) {
    collector.add(name_of("a tensor", item[0]), nb::object(item[1]));
  }
  return std::move(collector).take();
}

nb::object items_of(const char* argument, nb::handle mapping) {
  if (!nb::hasattr(mapping, "items")) {
    throw nb::type_error(
        fmt::format("{}: expected a mapping by name, not {}", argument, class_of(mapping)).c_str());
  }
  return mapping.attr("items")();
}

std::string name_of(const char* what, nb::handle given) {
  std::string name;
  if (from_str(given, name)) return name;
  if (nb::isinstance<nb::str>(given)) {
    fail(ErrorKind::invalid, "the name of {}, {}, has halves of surrogate pairs", what,
         nb::cast<std::string>(nb::repr(given)));
  }
  fail(ErrorKind::invalid, "the name of {} is a {}, not a str", what, class_of(given));
}

}  // namespace ferry::python
