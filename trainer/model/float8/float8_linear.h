// The FP8 matrix products of one linear layer.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/model/float8/float8_state.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// What a linear layer keeps of its input after the forward pass: nothing unless in FP8.
struct Float8Input {
  const kernels::Float8Scale* scale = nullptr;
  /// The input in FP8, [in, rows], if it is kept that way: then x may be freed. In pass.kept.
  const uint8_t* transposed = nullptr;
};

class Float8Linear {
 public:
  Float8Linear(const Float8State& state, std::string name, int64_t index, int64_t in, int64_t out);

  /// Views of its weight and of the transposed weight.
  int64_t code_bytes() const { return 2 * in_ * out_; }
  void set_memory(uint8_t* codes, kernels::Float8Scale* scale);

  /// y = x · Wᵀ + b over `rows` rows. `keeps`: x may be freed afterwards. x is what `source` is to
  /// compute, if not null, and is undefined afterwards if `keeps`.
  Float8Input forward(Pass& pass, int64_t rows, const Parameter& weight, kernels::ConstArray bias,
                      kernels::ConstArray x, kernels::Array y, bool keeps,
                      const kernels::ActivationForward* source = nullptr) const;

  /// The gradient of y in FP8, in pass.scratch.
  struct Gradient {
    kernels::Float8Matrix by_row;     // [rows, out]
    kernels::Float8Matrix by_column;  // [out, rows], where weight gradients take it
  };
  /// dy is what `source` is to compute, if not null, and is undefined afterwards unless weight
  /// gradients take it.
  Gradient rounded(Pass& pass, int64_t rows, kernels::ConstArray dy,
                   const kernels::ActivationBackward* source = nullptr) const;
  /// Sets dx, or adds to it.
  void input_gradient(Pass& pass, int64_t rows, const Gradient& gradient, kernels::Array dx,
                      bool accumulate = false) const;
  /// `x` is ignored if `input` has it.
  void weight_gradient(Pass& pass, int64_t rows, const Parameter& weight, const Float8Input& input,
                       kernels::ConstArray x, kernels::ConstArray dy,
                       const Gradient& gradient) const;

  /// Whether an input can be kept in FP8 only.
  bool can_keep() const { return state_.options().weight_gradients; }

 private:
  void round_weight(Pass& pass, const Parameter& weight) const;
  const kernels::Float8Scale* scale_of(Pass& pass, Arena& arena, Float8Tensor tensor,
                                       kernels::ConstArray x, int64_t count) const;
  template <typename Operation>
  const kernels::Float8Scale* round(Pass& pass, Arena& arena, Float8Tensor tensor,
                                    const kernels::Quantize& x, const Operation* source,
                                    bool only_rounded) const;
  float* maximum(const Pass& pass, Float8Tensor tensor) const;
  kernels::Float8 format(Float8Tensor tensor) const;
  void check_rows(int64_t rows) const;

  const Float8State& state_;
  std::string name_;
  int64_t index_, in_, out_;
  uint8_t* codes_ = nullptr;  // [out, in], then [in, out]
  kernels::Float8Scale* weight_scale_ = nullptr;
  mutable int64_t version_ = -1;  // of the parameters that codes_ were computed from
};

}  // namespace ferry
