// Linear layers with weights split over tensor-parallel ranks.
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
  /// `name` without ".weight". Has a bias if the parameters do.
  ColumnLinear(const ParameterSet& parameters, const std::string& name, int64_t in, int64_t out);

  /// Sets y and, if `activated` is not null, activated = activation(y).
  struct Outputs {
    kernels::Array y;
    kernels::Activation activation = kernels::Activation::gelu_tanh;
    kernels::Array activated = {};
  };
  /// `keeps`, if can_keep() allows it: x may be freed afterwards.
  Float8Input forward(Pass& pass, kernels::ConstArray x, const Outputs& outputs,
                      bool keeps = false) const;
  /// Adds to the parameters' gradients and sets dx. `input` is the result of forward().
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;
  /// Whether x can be kept in FP8 instead.
  bool can_keep(const Pass& pass) const {
    return float8_ != nullptr && float8_->can_keep() && !pass.ranks.sequence_parallel;
  }

  /// The same in two parts, where the kernel that computes dy also sums its rows for the bias. Null
  /// without a bias.
  kernels::Gradient take_bias_gradient() const;
  /// `source`, if not null, is what sets dy and is run first; dy is undefined afterwards.
  void backward_without_bias(Pass& pass, const Float8Input& input, kernels::ConstArray x,
                             kernels::ConstArray dy, kernels::Array dx,
                             const kernels::ActivationBackward* source = nullptr) const;

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

  /// `source`, if not null, is what sets x and is run first; x is undefined afterwards if `keeps`.
  Float8Input forward(Pass& pass, kernels::ConstArray x, kernels::Array y, bool keeps = false,
                      const kernels::ActivationForward* source = nullptr) const;
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;
  bool can_keep() const { return float8_ != nullptr && float8_->can_keep(); }

 private:
  Parameter weight_, bias_;
  Float8Linear* float8_ = nullptr;
  int64_t in_ = 0, out_ = 0;
};

/// y = x · Wᵀ + b on a rank's own rows. Every rank has all of y's columns; W is replicated, or its
/// rows are split over ranks and gathered when needed.
class ReplicatedLinear {
 public:
  ReplicatedLinear() = default;
  /// `weight` is the name of W, which is replicated or split into `tensor_ranks` parts, and `bias`
  /// that of b, where the parameters have it.
  ReplicatedLinear(const ParameterSet& parameters, const std::string& weight, int64_t in,
                   int64_t out, int64_t tensor_ranks = 1, const std::string& bias = {});

  Float8Input forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// Adds to dx, or sets it.
  void backward(Pass& pass, const Float8Input& input, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx, bool accumulate) const;

 private:
  kernels::ConstArray whole_weight(Pass& pass) const;
  bool is_shared() const { return weight_.elements < in_ * out_; }

  Parameter weight_, bias_;
  Float8Linear* float8_ = nullptr;  // never for a split weight
  int64_t in_ = 0, out_ = 0;
};

/// With sequence parallelism, all rows of x gathered in pass.scratch; otherwise x.
kernels::ConstArray all_rows(Pass& pass, kernels::ConstArray x, int64_t width);

/// The sum over tensor ranks of `partial` [rows, width]: with sequence parallelism this rank's rows
/// of it, otherwise all. May overwrite `partial`; without sequence parallelism `sum` may alias it.
void sum_rows(Pass& pass, kernels::Array partial, kernels::Array sum, int64_t width);

}  // namespace ferry
