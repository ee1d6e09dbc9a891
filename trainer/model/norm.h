// A norm over hidden states or heads.
#pragma once

#include <string>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// The rows that a norm is applied to: `heads` vectors in each, apart as strides say (norm.h of the
/// kernels).
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
  /// dx is added to when `accumulate`, else set.
  /// sum = x + residual, y = norm(sum). Without strides.
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

// The residual connection: what a module gives is dropped out and added.

/// What of a layer drops out.
enum class DropoutPart : uint8_t { attention, behind_attention, behind_mlp };

/// Tells the dropouts of one step apart.
constexpr uint64_t dropout_place(int64_t layer, DropoutPart part) {
  return 3 * static_cast<uint64_t>(layer) + static_cast<uint64_t>(part);
}

/// x + dropout(change), not added up yet: whatever reads the sum next computes it. x may be none:
/// what is left of the change, then.
struct OpenSum {
  kernels::ConstArray x, change;
  uint64_t place = 0;  // tells dropouts apart

  explicit operator bool() const noexcept { return static_cast<bool>(change); }
};

/// y becomes the sum, of rows of `width` elements.
void add_residual(Pass& pass, int64_t width, const OpenSum& sum, kernels::Array y);

/// The gradient of the change, from that of y: `dy` itself without dropout, else in pass.scratch.
kernels::ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width,
                                    kernels::ConstArray dy);

}  // namespace ferry
