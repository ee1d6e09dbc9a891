#include "python/bindings/array.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "python/bindings/bindings.h"
#include "python/bindings/keywords.h"
#include "python/bindings/text.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

constexpr size_t kAlignmentBytes = 64;  // cache lines, and what DLPack asks for

// The format of Python's struct module; null for types that it has none for.
const char* buffer_format(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "?";
    case DType::u8:
      return "B";
    case DType::i8:
      return "b";
    case DType::u16:
      return "H";
    case DType::i16:
      return "h";
    case DType::u32:
      return "I";
    case DType::i32:
      return "i";
    case DType::u64:
      return "Q";
    case DType::i64:
      return "q";
    case DType::f16:
      return "e";
    case DType::f32:
      return "f";
    case DType::f64:
      return "d";
    case DType::c64:
      return "Zf";
    case DType::c128:
      return "Zd";
    default:
      return nullptr;
  }
}

// Codes of dlpack.h.
nb::dlpack::dtype dlpack_dtype(DType dtype) {
  enum : uint8_t {
    integer = 0,
    unsigned_integer = 1,
    real = 2,
    bfloat = 4,
    complex = 5,
    truth = 6
  };
  enum : uint8_t {
    e4m3fn = 10,
    e4m3fnuz = 11,
    e5m2 = 12,
    e5m2fnuz = 13,
    e8m0fnu = 14,
    e2m1fn = 17
  };
  const auto bits = static_cast<uint8_t>(8 * size_bytes(dtype));
  switch (dtype) {
    case DType::boolean:
      return {truth, bits, 1};
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return {integer, bits, 1};
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return {unsigned_integer, bits, 1};
    case DType::f16:
    case DType::f32:
    case DType::f64:
      return {real, bits, 1};
    case DType::bf16:
      return {bfloat, bits, 1};
    case DType::c64:
    case DType::c128:
      return {complex, bits, 1};
    case DType::f8_e4m3:
      return {e4m3fn, bits, 1};
    case DType::f8_e4m3fnuz:
      return {e4m3fnuz, bits, 1};
    case DType::f8_e5m2:
      return {e5m2, bits, 1};
    case DType::f8_e5m2fnuz:
      return {e5m2fnuz, bits, 1};
    case DType::f8_e8m0:
      return {e8m0fnu, bits, 1};
    case DType::f4x2:
      return {e2m1fn, 4, 2};
  }
  return {unsigned_integer, bits, 1};
}

// An object with __dlpack__ and __dlpack_device__ that keeps the array.
nb::object dlpack_source(nb::handle self) {
  const Array& array = nb::cast<const Array&>(self);
  std::vector<size_t> shape(array.shape.begin(), array.shape.end());
  nb::ndarray<nb::array_api> view(array.bytes.data(), shape.size(), shape.data(), self, nullptr,
                                  dlpack_dtype(array.dtype), nb::device::cpu::value, 0);
  return nb::cast(view, nb::rv_policy::reference);
}

nb::object call_dlpack(nb::handle self, nb::kwargs keywords) {
  const bool copy = keywords.contains("copy") && keywords["copy"].equal(nb::bool_(true));
  nb::dict passed;
  for (const auto& [key, value] : keywords) passed[key] = value;
  if (!copy) return dlpack_source(self).attr("__dlpack__")(**passed);
  const Array& array = nb::cast<const Array&>(self);
  Array copied = new_array(array.dtype, array.shape);
  std::copy(array.bytes.begin(), array.bytes.end(), copied.bytes.begin());
  PyDict_DelItemString(passed.ptr(), "copy");
  return dlpack_source(nb::cast(std::move(copied))).attr("__dlpack__")(**passed);
}

// What a Py_buffer points at while it is used.
struct BufferShape {
  std::vector<Py_ssize_t> shape, strides;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  view->obj = nullptr;
  if (!nb::inst_ready(self)) {  // Array.__new__(Array)
    PyErr_SetString(PyExc_BufferError, "the Array was not made by ferry");
    return -1;
  }
  const Array* const array = nb::inst_ptr<Array>(self);
  const char* const format = buffer_format(array->dtype);
  if (format == nullptr && (flags & (PyBUF_FORMAT | PyBUF_ND)) != 0) {
    PyErr_SetString(PyExc_BufferError,
                    "Python's buffers have no format for this dtype; use numpy(), torch(), "
                    "torch.from_dlpack() or tobytes()");
    return -1;
  }
  auto* shape = new (std::nothrow) BufferShape;
  if (shape == nullptr) {
    PyErr_NoMemory();
    return -1;
  }
  for (const int64_t extent : array->shape) shape->shape.push_back(extent);
  for (const int64_t stride : row_major_strides(array->shape)) {
    shape->strides.push_back(stride * size_bytes(array->dtype));
  }
  const bool has_shape = (flags & PyBUF_ND) == PyBUF_ND;
  view->buf = array->bytes.data();
  view->len = static_cast<Py_ssize_t>(array->bytes.size());
  view->readonly = 0;
  view->itemsize = size_bytes(array->dtype);
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
  view->ndim = has_shape ? static_cast<int>(array->shape.size()) : 1;
  view->shape = has_shape ? shape->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? shape->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = shape;
  view->obj = Py_NewRef(self);
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) noexcept {
  delete static_cast<BufferShape*>(view->internal);
}

nb::object framework(const char* function, nb::handle self) {
  return nb::module_::import_("ferry._frameworks").attr(function)(self);
}

Array as_dtype(const Array& array, nb::handle given) {
  DType dtype{};
  take({"dtype", given}, dtype);
  if (dtype == array.dtype) return array;
  if (!can_convert(array.dtype, dtype)) {
    fail(ErrorKind::mismatch, "elements of {} cannot be converted to {}",
         safetensors_name(array.dtype), safetensors_name(dtype));
  }
  Array made = new_array(dtype, array.shape);
  const WithoutGil without;
  convert(array.bytes.data(), size_bytes(array.dtype), array.dtype, made.bytes.data(),
          size_bytes(dtype), dtype, static_cast<int64_t>(made.bytes.size()) / size_bytes(dtype));
  return made;
}

int64_t length(const Array& array) {
  if (array.shape.empty()) throw nb::type_error("len() of a scalar");
  return array.shape[0];
}

std::string text_of(const Array& array) {
  return fmt::format("Array(dtype='{}', shape=({}{}))", safetensors_name(array.dtype),
                     fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
}

}  // namespace

Array new_array(DType dtype, const Dims& shape) {
  const auto bytes = static_cast<size_t>(element_count(shape, "an array") * size_bytes(dtype));
  void* const memory = std::aligned_alloc(
      kAlignmentBytes, (bytes + kAlignmentBytes) / kAlignmentBytes * kAlignmentBytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {dtype, shape, {static_cast<std::byte*>(memory), bytes}, {memory, std::free}};
}

void bind_array(nb::module_& module) {
  module.def(
      "torch_name",
      [](nb::handle given) {
        DType dtype{};
        take({"dtype", given}, dtype);
        return torch_name(dtype);
      },
      nb::arg("dtype"), nb::sig("def torch_name(dtype: typing.Any) -> str"));
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                {0, nullptr}};
  nb::class_<Array>(module, "Array", nb::type_slots(slots),
                    "Elements in memory, row-major: what reading gives with framework=None.\n\n"
                    "Has Python's buffer protocol, __array__ and __dlpack__, none of which copies. "
                    "The memory may "
                    "be\nwritten to, which never changes a file. torch.asarray() takes a buffer's "
                    "bytes for float32: use\ntorch() or torch.from_dlpack().")
      .def_prop_ro(
          "dtype", [](const Array& array) { return array.dtype; }, "safetensors' spelling: 'BF16'.")
      .def_prop_ro(
          "shape", [](const Array& array) { return nb::tuple(nb::cast(array.shape)); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Elements along each axis.")
      .def_prop_ro(
          "nbytes", [](const Array& array) { return array.bytes.size(); }, "Its bytes.")
      .def(
          "tobytes",
          [](const Array& array) { return nb::bytes(array.bytes.data(), array.bytes.size()); },
          "A copy of its bytes, little-endian.")
      .def("astype", as_dtype, nb::arg("dtype"),
           "Its values as another dtype ('F32', torch.bfloat16), each rounded once, to nearest "
           "even;\nitself where it is of that dtype already. Mismatch where they cannot be "
           "converted.",
           nb::sig("def astype(self, dtype: typing.Any) -> Array"))
      .def(
          "numpy", [](nb::handle self) { return framework("to_numpy", self); },
          "As a NumPy array of the same memory. For bf16 and fp8, which NumPy lacks, with dtypes "
          "of\nml_dtypes; Unsupported without that package.",
          nb::sig("def numpy(self) -> typing.Any"))
      .def(
          "torch", [](nb::handle self) { return framework("to_torch", self); },
          "As a PyTorch tensor of the same memory.", nb::sig("def torch(self) -> typing.Any"))
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            return nb::module_::import_("ferry._frameworks").attr("to_array")(self, dtype, copy);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                  "typing.Any"))
      .def("_as_bytes",
           [](const Array& array) {
             const auto bytes = static_cast<int64_t>(array.bytes.size());
             return Array{DType::u8, {bytes}, array.bytes, array.owner};
           })
      .def("__dlpack__", call_dlpack,
           nb::sig("def __dlpack__(self, **kwargs: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__", [](nb::handle) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__len__", length)
      .def("__repr__", text_of);
}

}  // namespace ferry::python
