// The FP8 matrix products of one linear layer, or of those of a layer's experts.
#pragma once

#include <cstdint>
#include <span>
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

/// Rows sorted by expert, in FP8. Where they are copies of tokens' rows, these are known, too.
struct Float8Rows {
  kernels::Float8Matrix rows;
  kernels::Float8Matrix tokens;    // if known
  const int32_t* index = nullptr;  // row r is token index[r] / divisor
  int64_t divisor = 1;
};

class Float8Linear {
 public:
  Float8Linear(const Float8State& state, std::string name, int64_t index, int64_t in, int64_t out,
               int64_t weights);

  /// Views of its weights and of the transposed weights, and the weights' scales.
  int64_t code_bytes() const { return 2 * weights_ * in_ * out_; }
  int64_t weights() const { return weights_; }
  void set_memory(uint8_t* codes, kernels::Float8Scale* scales);

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

  // Experts: rows sorted by expert, any number of them.

  /// `rows` of the input or the gradient in FP8, in `codes`. x is what `source` is to compute, if
  /// not null, and is undefined afterwards if `only_rounded`. A scale from present values is at
  /// `current`.
  template <typename Operation>
  kernels::Float8Matrix rounded_rows(Pass& pass, Float8Tensor tensor, int64_t rows,
                                     kernels::ConstArray x, uint8_t* codes,
                                     kernels::Float8Scale* current, const Operation* source,
                                     bool only_rounded) const;
  /// y = x · Wᵀ or, for the gradient, dx = dy · W, by each group's W.
  void grouped(Pass& pass, Float8Tensor tensor, int64_t rows, const int64_t* offsets,
               std::span<const kernels::ConstArray> weights, const kernels::Float8Matrix& x,
               kernels::Array y) const;
  /// Sets each group's gradient to dyᵀ · x, or adds that to it. Takes memory for `most` rows,
  /// however many there are: a plan knows only the worst case.
  void grouped_gradients(Pass& pass, int64_t rows, int64_t most, const int64_t* offsets,
                         const Float8Rows& x, const Float8Rows& dy,
                         std::span<const kernels::Array> gradients, bool accumulate) const;

  /// Whether an input can be kept in FP8 only.
  bool can_keep() const { return state_.options().weight_gradients; }

 private:
  void round_weights(Pass& pass, std::span<const kernels::ConstArray> weights) const;
  const kernels::Float8Scale* scale_of(Pass& pass, kernels::Float8Scale* current,
                                       Float8Tensor tensor, kernels::ConstArray x,
                                       int64_t count) const;
  template <typename Operation>
  const kernels::Float8Scale* round(Pass& pass, kernels::Float8Scale* current, Float8Tensor tensor,
                                    const kernels::Quantize& x, const Operation* source,
                                    bool only_rounded) const;
  float* maximum(const Pass& pass, Float8Tensor tensor) const;
  kernels::Float8 format(Float8Tensor tensor) const;
  void check_rows(int64_t rows) const;

  const Float8State& state_;
  std::string name_;
  int64_t index_, in_, out_, weights_;
  uint8_t* codes_ = nullptr;  // [weights, out, in], then [weights, in, out]
  kernels::Float8Scale* weight_scales_ = nullptr;
  mutable int64_t version_ = -1;       // of the parameters that codes_ were computed from
  mutable bool shares_scale_ = false;  // all of codes_ have the first of weight_scales_
};

}  // namespace ferry
