#include "kernels/cuda/hopper/tensor_map.h"

#include <cudaTypedefs.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

namespace {

/// The driver's function, obtained through the runtime to avoid linking with the driver.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                           cudaEnableDefault, &found),
          "looking for cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess) {
      throw std::runtime_error(
          "CUDA: the driver has no cuTensorMapEncodeTiled: a newer one is needed");
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  return function;
}

}  // namespace

CUtensorMap tensor_map(const ConstArray& x, int64_t width, const Dimension* dimensions, int count,
                       int box_rows) {
  cuuint64_t sizes[5] = {static_cast<cuuint64_t>(width)};
  cuuint64_t strides[4] = {};  // in bytes, of all dimensions but the first
  cuuint32_t box[5] = {64, static_cast<cuuint32_t>(box_rows), 1, 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < count; ++i) {
    sizes[i + 1] = static_cast<cuuint64_t>(dimensions[i].size);
    // The stride of a dimension of size 1 is unused, but TMA still requires a multiple of 16.
    const int64_t stride = dimensions[i].size > 1 ? dimensions[i].stride : 8;
    strides[i] = static_cast<cuuint64_t>(stride * size_bytes(x.type));
  }
  CUtensorMap map;
  const auto type =
      x.type == Type::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result =
      encoder()(&map, type, static_cast<cuuint32_t>(count + 1), const_cast<void*>(x.data), sizes,
                strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error("CUDA: describing a tensor: error " + std::to_string(result));
  }
  return map;
}

}  // namespace ferry::kernels::cuda
