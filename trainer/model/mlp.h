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
  /// `width` is the rank's part; `prefix` is "decoder.layers.<layer>.mlp".
  Mlp(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
      int64_t width);

  /// y = mlp(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// Whether the backward pass does not need x, for an MLP that is x's only user.
  bool keeps_input(const Pass& pass) const {
    return !shares_input_ && !pass.recompute.norms && !pass.recompute.mlp && input_.can_keep(pass);
  }
  void share_input() { shares_input_ = true; }
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

 private:
  ColumnLinear input_;
  RowLinear output_;
  Parameter alpha_p_, alpha_n_;  // xIELU's parameters
  kernels::Activation activation_ = kernels::Activation::swiglu;
  kernels::GluSettings glu_;
  int64_t width_ = 0, up_width_ = 0;
  bool shares_input_ = false;
};

/// What a model's gated activation does to gate and up.
kernels::GluSettings glu_of(const Architecture& architecture);
/// The kernels' activation for a model's. unsupported if there is no kernel.
kernels::Activation activation_of(const Architecture& architecture);

}  // namespace ferry
