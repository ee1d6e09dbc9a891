// Attention by cuDNN in the place of our own kernels.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// Its kernels for one device. Used by the device's thread.
class CudnnAttention {
 public:
  CudnnAttention() = default;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  virtual ~CudnnAttention() = default;

  /// False, nothing having been done, of what is none of fused()'s (kernels/gpu_attention.h) and
  /// of what this release of the library has no kernel for on this GPU. A shape that is met first
  /// has its kernels chosen, and compiled where they are not in the library.
  virtual bool run(const AttentionForward& x) = 0;
  virtual bool run(const AttentionBackward& x) = 0;

  /// What the library said of the last shape that it has no kernel for.
  virtual const std::string& refusal() const = 0;
};

/// `deterministic`: gradients have the same bits every time, as everything else here; otherwise the
/// order of some sums is left to chance, to see what that would gain. The library is loaded when it
/// is asked for first. Throws std::runtime_error where it is not to be had, saying what to do.
std::unique_ptr<CudnnAttention> cudnn_attention(Device& device, bool deterministic = true);

}  // namespace ferry::kernels::cuda
