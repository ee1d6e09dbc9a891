// Linear layers whose weight tensor-parallel ranks share.
//
// Source: Shoeybi et al. 2019 (Megatron-LM), Korthikanti et al. 2022 (sequence parallelism).
#pragma once

#include <string>

#include "trainer/model/float8/float8_linear.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// y = x · Wᵀ + b, where each rank has rows of W: its part of the output's columns. x is the same
/// on all ranks or, with sequence parallelism, each has its own rows of it.
class ColumnLinear {
 public:
  ColumnLinear() = default;
  /// `name` without ".weight". The bias is there when the parameters have it.
  ColumnLinear(const ParameterSet& parameters, const std::string& name, int64_t in, int64_t out);

  /// Sets y and, where there is memory for it, activated = activation(y).
  struct Outputs {
    kernels::Array y;
    kernels::Activation activation = kernels::Activation::gelu_tanh;
    kernels::Array activated = {};
  };
  /// `keeps`, which can_keep() must allow: x may go behind it.
  Float8Input forward(Pass& pass, kernels::ConstArray x, const Outputs& outputs,
                      bool keeps = false) const;
  /// Adds to the parameters' gradients and sets dx. `input` is what forward() gave.
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;
  /// Whether x can be kept in 8 bits, in the place of its rows.
  bool can_keep(const Pass& pass) const {
    return float8_ != nullptr && float8_->can_keep() && !pass.ranks.sequence_parallel;
  }

  /// The same in two parts: whoever computes dy adds up its rows, too. None without a bias.
  kernels::Gradient take_bias_gradient() const;
  void backward_without_bias(Pass& pass, const Float8Input& input, kernels::ConstArray x,
                             kernels::ConstArray dy, kernels::Array dx) const;

 private:
  Parameter weight_, bias_;
  Float8Linear* float8_ = nullptr;
  int64_t in_ = 0, out_ = 0;
};

/// y = x · Wᵀ + b, where each rank has columns of W and that part of x's; y is the same on all
/// ranks or, with sequence parallelism, each gets its own rows of it. b is the same on all ranks:
/// the first one adds it.
class RowLinear {
 public:
  RowLinear() = default;
  RowLinear(const ParameterSet& parameters, const std::string& name, int64_t in, int64_t out);

  Float8Input forward(Pass& pass, kernels::ConstArray x, kernels::Array y,
                      bool keeps = false) const;
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;
  bool can_keep() const { return float8_ != nullptr && float8_->can_keep(); }

 private:
  Parameter weight_, bias_;
  Float8Linear* float8_ = nullptr;
  int64_t in_ = 0, out_ = 0;
};

/// y = x · Wᵀ on a rank's own rows. Every rank has all of y's columns; W is whole on each, or they
/// share its rows and gather it when they need it.
class ReplicatedLinear {
 public:
  ReplicatedLinear() = default;
  /// `weight` is the name of W, which is whole or one of `tensor_ranks` parts.
  ReplicatedLinear(const ParameterSet& parameters, const std::string& weight, int64_t in,
                   int64_t out, int64_t tensor_ranks = 1);

  Float8Input forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// Adds to dx, or sets it.
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx, bool accumulate) const;

 private:
  kernels::ConstArray whole_weight(Pass& pass) const;
  bool is_shared() const { return weight_.elements < in_ * out_; }

  Parameter weight_;
  Float8Linear* float8_ = nullptr;  // never of a weight that ranks share
  int64_t in_ = 0, out_ = 0;
};

/// All rows of x, where tensor ranks have rows of their own (in pass.scratch); else x.
kernels::ConstArray all_rows(Pass& pass, kernels::ConstArray x, int64_t width);

/// The sum over the tensor ranks of `partial` [rows, width]: this rank's rows of it, or all. May
/// use `partial`; `sum` may be it where ranks have no rows of their own.
void sum_rows(Pass& pass, kernels::Array partial, kernels::Array sum, int64_t width);

}  // namespace ferry
