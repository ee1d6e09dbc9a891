// The dense MLP of a layer.
#pragma once

#include <string>

#include "convert/model/architecture.h"
#include "trainer/model/linear.h"

namespace ferry {

class Mlp {
 public:
  struct Saved {
    kernels::Array up;      // [rows, width], or twice that when gated
    kernels::Array active;  // [rows, width]
  };

  Mlp() = default;
  /// `width` is that of the rank's part, `prefix` "decoder.layers.<layer>.mlp".
  Mlp(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
      int64_t width);

  /// y = mlp(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

 private:
  ColumnLinear input_;
  RowLinear output_;
  Parameter alpha_p_, alpha_n_;  // of xIELU
  kernels::Activation activation_ = kernels::Activation::swiglu;
  int64_t width_ = 0, up_width_ = 0;
};

/// The kernels' word for a model's activation. unsupported for one that there is no kernel of.
kernels::Activation activation_of(const Architecture& architecture);

}  // namespace ferry
