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

}  // namespace ferry
