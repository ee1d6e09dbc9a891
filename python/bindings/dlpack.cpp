#include "python/bindings/dlpack.h"

#include <nanobind/stl/pair.h>

#include "ckpt/base/error.h"
#include "python/bindings/cuda_stager.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// Source: dlpack.h 1.1 of github.com/dmlc/dlpack.
struct DlDevice {
  int32_t type = 0, id = 0;
};
struct DlType {
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 0;
};
struct DlTensor {
  void* data = nullptr;
  DlDevice device;
  int32_t rank = 0;
  DlType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // in elements; null: row-major
  uint64_t byte_offset = 0;
};
struct DlManaged {
  DlTensor tensor;  // and more
};
struct DlManagedVersioned {
  uint32_t major = 0, minor = 0;
  void* context = nullptr;
  void (*deleter)(DlManagedVersioned*) = nullptr;
  uint64_t flags = 0;
  DlTensor tensor;
};

constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

std::optional<DType> dtype_of(const DlType& type) {
  const auto sized = [&](int code) { return code << 8 | type.bits; };
  if (type.code == 17 && type.bits == 4 && type.lanes == 2) return DType::f4x2;
  if (type.lanes != 1) return std::nullopt;
  switch (sized(type.code)) {
    case 0 << 8 | 8:
      return DType::i8;
    case 0 << 8 | 16:
      return DType::i16;
    case 0 << 8 | 32:
      return DType::i32;
    case 0 << 8 | 64:
      return DType::i64;
    case 1 << 8 | 8:
      return DType::u8;
    case 1 << 8 | 16:
      return DType::u16;
    case 1 << 8 | 32:
      return DType::u32;
    case 1 << 8 | 64:
      return DType::u64;
    case 2 << 8 | 16:
      return DType::f16;
    case 2 << 8 | 32:
      return DType::f32;
    case 2 << 8 | 64:
      return DType::f64;
    case 4 << 8 | 16:
      return DType::bf16;
    case 5 << 8 | 64:
      return DType::c64;
    case 5 << 8 | 128:
      return DType::c128;
    case 6 << 8 | 8:
      return DType::boolean;
    case 10 << 8 | 8:
      return DType::f8_e4m3;
    case 11 << 8 | 8:
      return DType::f8_e4m3fnuz;
    case 12 << 8 | 8:
      return DType::f8_e5m2;
    case 13 << 8 | 8:
      return DType::f8_e5m2fnuz;
    case 14 << 8 | 8:
      return DType::f8_e8m0;
    default:
      return std::nullopt;
  }
}

nb::object capsule_of(nb::handle object, nb::handle stream) {
  try {
    return object.attr("__dlpack__")(nb::arg("stream") = stream,
                                     nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // of a library that knows no versions
  }
  return object.attr("__dlpack__")(nb::arg("stream") = stream);
}

const DlTensor& tensor_in(nb::handle capsule) {
  constexpr const char *kVersioned = "dltensor_versioned", *kPlain = "dltensor";
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    return static_cast<const DlManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned))
        ->tensor;
  }
  const void* const managed = PyCapsule_GetPointer(capsule.ptr(), kPlain);
  if (managed == nullptr) throw nb::python_error();
  return static_cast<const DlManaged*>(managed)->tensor;
}

}  // namespace

DlpackTensor::DlpackTensor(nb::handle object, const std::string& name, CudaStager& stager) {
  const auto [device, id] =
      nb::cast<std::pair<int64_t, int64_t>>(object.attr("__dlpack_device__")());
  if (device != kCpu && device != kCuda && device != kCudaHost && device != kCudaManaged) {
    fail(ErrorKind::unsupported,
         "tensor {} is on a device of DLPack's type {}: only the CPU's and CUDA's can be saved; "
         "copy it to the CPU",
         name, device);
  }
  const bool is_cuda = device == kCuda;
  nb::object stream = nb::none();
  if (is_cuda) {
    device_ = static_cast<int>(id);
    stream = nb::int_(stager.stream(*device_));
  }
  capsule_ = capsule_of(object, stream);
  const DlTensor& tensor = tensor_in(capsule_);
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype) {
    fail(ErrorKind::unsupported, "tensor {} has elements of DLPack's type {} of {} bits", name,
         tensor.dtype.code, tensor.dtype.bits);
  }
  dtype_ = *dtype;
  shape_.assign(tensor.shape, tensor.shape + tensor.rank);
  data_ = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  if (tensor.strides == nullptr || element_count(shape_, name) == 0) return;
  const Dims expected = row_major_strides(shape_);
  for (size_t i = 0; i < shape_.size(); ++i) {
    is_contiguous_ = is_contiguous_ && (shape_[i] == 1 || tensor.strides[i] == expected[i]);
  }
}

}  // namespace ferry::python
