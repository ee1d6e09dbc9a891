// Arrays of other libraries, by the DLPack protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <string>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry::python {

class CudaStager;

/// What an object's __dlpack__() gives. Memory of a CUDA device is ready for the stager's stream.
class DlpackTensor {
 public:
  /// unsupported, naming `name`, for other devices than the CPU and CUDA's, and other types.
  DlpackTensor(nanobind::handle object, const std::string& name, CudaStager& stager);

  DType dtype() const noexcept { return dtype_; }
  const Dims& shape() const noexcept { return shape_; }
  const std::byte* data() const noexcept { return data_; }
  bool is_contiguous() const noexcept { return is_contiguous_; }
  std::optional<int> device() const noexcept { return device_; }  // of CUDA
  nanobind::handle owner() const noexcept { return capsule_; }

 private:
  nanobind::object capsule_;
  DType dtype_ = DType::f32;
  Dims shape_;
  const std::byte* data_ = nullptr;
  bool is_contiguous_ = true;
  std::optional<int> device_;
};

}  // namespace ferry::python
