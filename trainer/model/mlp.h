// The dense MLP of a layer.
#pragma once

#include <string>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/linear.h"

namespace ferry {

class Mlp {
 public:
  struct Saved {
    kernels::Array up;      // [rows, width], or twice that when gated
    kernels::Array active;  // [rows, width], if kept
    Float8Input input, active_input;
  };

  Mlp() = default;
  /// `width` is that of the rank's part, `prefix` "decoder.layers.<layer>.mlp".
  Mlp(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
      int64_t width);

  /// y = mlp(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// Whether the backward pass does without x: of an MLP that has x to itself.
  bool keeps_input(const Pass& pass) const {
    return !shares_input_ && !pass.recompute.norms && !pass.recompute.mlp && input_.can_keep(pass);
  }
  void share_input() { shares_input_ = true; }
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

 private:
  ColumnLinear input_;
  RowLinear output_;
  Parameter alpha_p_, alpha_n_;  // of xIELU
  kernels::Activation activation_ = kernels::Activation::swiglu;
  int64_t width_ = 0, up_width_ = 0;
  bool shares_input_ = false;
};

/// The kernels' word for a model's activation. unsupported for one that there is no kernel of.
kernels::Activation activation_of(const Architecture& architecture);

}  // namespace ferry
