// A norm over hidden states or heads.
#pragma once

#include <string>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// The rows that a norm is applied to: `heads` vectors in each, with strides (see the kernels'
/// norm.h).
struct NormRows {
  int64_t rows = 0;
  int64_t heads = 1;
  int64_t row_stride = 0, head_stride = 0;
};

class NormLayer {
 public:
  struct Saved {
    float* mean = nullptr;
    float* inverse = nullptr;
  };

  NormLayer() = default;
  /// `name` without ".weight".
  NormLayer(const ParameterSet& parameters, const std::string& name, int64_t width,
            const Architecture& architecture);

  explicit operator bool() const noexcept { return static_cast<bool>(weight_); }

  Saved forward(Pass& pass, const NormRows& rows, kernels::ConstArray x, kernels::Array y) const;
  /// Adds to dx if `accumulate`, otherwise sets it. sum = x + residual, y = norm(sum). Without
  /// strides.
  Saved forward(Pass& pass, const NormRows& rows, kernels::ConstArray x,
                kernels::ConstArray residual, kernels::Array sum, kernels::Array y) const;
  void backward(Pass& pass, const NormRows& rows, const Saved& saved, kernels::ConstArray x,
                kernels::ConstArray dy, kernels::Array dx, bool accumulate) const;

 private:
  Parameter weight_, bias_;
  int64_t width_ = 0;
  double epsilon_ = 0;
  bool rms_ = true;
};

// The residual connection: adds a module's output after dropout.

/// The place of a dropout in a layer.
enum class DropoutPart : uint8_t { attention, after_attention, after_mlp };

/// Identifies a dropout within a step.
constexpr uint64_t dropout_place(int64_t layer, DropoutPart part) {
  return 3 * static_cast<uint64_t>(layer) + static_cast<uint64_t>(part);
}

/// x + dropout(change), not computed yet: the next reader of the sum computes it. Without x it is
/// dropout(change).
struct PendingResidual {
  kernels::ConstArray x, change;
  uint64_t place = 0;  // identifies the dropout

  explicit operator bool() const noexcept { return static_cast<bool>(change); }
};

/// Sets y to the sum, in rows of `width` elements.
void add_residual(Pass& pass, int64_t width, const PendingResidual& sum, kernels::Array y);

/// The gradient of the change from that of y: `dy` itself without dropout, otherwise in
/// pass.scratch.
kernels::ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width,
                                    kernels::ConstArray dy);

}  // namespace ferry
