// Attention by cuDNN instead of our own kernels.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// cuDNN's attention on one device. Used by the device's thread.
class CudnnAttention {
 public:
  CudnnAttention() = default;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  virtual ~CudnnAttention() = default;

  /// Returns false, without doing anything, unless fused() (kernels/gpu_attention.h) applies and
  /// this release of the library has a kernel for this GPU. On first use of a shape its kernels are
  /// selected and, if necessary, compiled.
  virtual bool run(const AttentionForward& x) = 0;
  virtual bool run(const AttentionBackward& x) = 0;

  /// The library's message about the last shape without a kernel.
  virtual const std::string& refusal() const = 0;
};

/// `deterministic`: gradients always have the same bits, like everything else here; otherwise the
/// order of some sums is undefined, to measure what that would gain. Loads the library on first
/// use. Throws std::runtime_error, saying what to do, if it is not available.
std::unique_ptr<CudnnAttention> cudnn_attention(Device& device, bool deterministic = true);

}  // namespace ferry::kernels::cuda
