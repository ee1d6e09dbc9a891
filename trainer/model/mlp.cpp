#include "trainer/model/mlp.h"

#include "ckpt/base/error.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

kernels::Activation activation_of(const Architecture& architecture) {
  switch (architecture.activation) {
    case Activation::swiglu:
      return kernels::Activation::swiglu;
    case Activation::gelu:
      return kernels::Activation::gelu;
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::squared_relu:
      return kernels::Activation::squared_relu;
    case Activation::quick_geglu:
      return kernels::Activation::quick_geglu;
    case Activation::xielu:
      return kernels::Activation::xielu;
    case Activation::tanh_geglu:
    case Activation::other:
      break;
  }
  fail(ErrorKind::unsupported,
       "the model's activation function is not supported; supported are swiglu, gelu, "
       "squared-relu, quick-geglu and xielu");
}

kernels::GluSettings glu_of(const Architecture& architecture) {
  return {static_cast<float>(architecture.glu_clamp), static_cast<float>(architecture.glu_offset)};
}

Mlp::Mlp(const ParameterSet& parameters, const std::string& prefix, const Architecture& a,
         int64_t width)
    : activation_(activation_of(a)),
      glu_(glu_of(a)),
      width_(width),
      up_width_(a.gated() ? 2 * width : width) {
  input_ = ColumnLinear(parameters, prefix + ".linear_fc1", a.hidden, up_width_);
  output_ = RowLinear(parameters, prefix + ".linear_fc2", width_, a.hidden);
  if (activation_ == kernels::Activation::xielu) {
    alpha_p_ = parameters.get(prefix + ".activation_func.alpha_p", 1);
    alpha_n_ = parameters.get(prefix + ".activation_func.alpha_n", 1);
  }
}

Mlp::Saved Mlp::forward(Pass& pass, ConstArray x, Array y) const {
  Saved saved;
  const ArenaScope scope(pass.scratch);
  const bool keeps_active = output_.can_keep();
  saved.up = pass.kept.take(pass.rows() * up_width_, x.type);
  saved.active = (keeps_active ? pass.scratch : pass.kept).take(pass.rows() * width_, x.type);
  if (kernels::is_gated(activation_) || alpha_p_) {
    saved.input = input_.forward(pass, x, {saved.up}, keeps_input(pass));
    const kernels::ActivationForward activation{.kind = activation_,
                                                .rows = pass.rows(),
                                                .width = width_,
                                                .x = saved.up,
                                                .y = saved.active,
                                                .glu = glu_,
                                                .alpha_p = alpha_p_.value,
                                                .alpha_n = alpha_n_.value};
    saved.active_input = output_.forward(pass, saved.active, y, keeps_active, &activation);
  } else {
    saved.input = input_.forward(pass, x, {saved.up, activation_, saved.active}, keeps_input(pass));
    saved.active_input = output_.forward(pass, saved.active, y, keeps_active);
  }
  return saved;
}

void Mlp::backward(Pass& pass, const Saved& saved, ConstArray x, ConstArray dy, Array dx) const {
  const ArenaScope scope(pass.scratch);
  const Array dactive = pass.scratch.take(pass.rows() * width_, x.type);
  output_.backward(pass, saved.active_input, saved.active, dy, dactive);
  const Array dup = pass.scratch.take(pass.rows() * up_width_, x.type);
  const kernels::ActivationBackward activation{.kind = activation_,
                                               .rows = pass.rows(),
                                               .width = width_,
                                               .x = saved.up,
                                               .dy = dactive,
                                               .dx = dup,
                                               .glu = glu_,
                                               .alpha_p = alpha_p_.value,
                                               .alpha_n = alpha_n_.value,
                                               .dalpha_p = alpha_p_.take_gradient(),
                                               .dalpha_n = alpha_n_.take_gradient(),
                                               .dbias = input_.take_bias_gradient()};
  input_.backward_without_bias(pass, saved.input, x, dup, dx, &activation);
}

}  // namespace ferry
