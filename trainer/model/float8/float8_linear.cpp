#include "trainer/model/float8/float8_linear.h"

#include <utility>

#include "ckpt/base/error.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Float8;
using kernels::Float8Matrix;
using kernels::Float8Scale;

Float8Linear::Float8Linear(const Float8State& state, std::string name, int64_t index, int64_t in,
                           int64_t out, int64_t weights)
    : state_(state), name_(std::move(name)), index_(index), in_(in), out_(out), weights_(weights) {
  if (in % kernels::kFloat8Multiple == 0 && out % kernels::kFloat8Multiple == 0) return;
  fail(ErrorKind::invalid,
       "--fp8-format: {} has {} inputs and {} outputs on a tensor rank, but FP8 products need "
       "multiples of {}: change the model's sizes or --tensor-model-parallel-size, or leave "
       "--fp8-format out",
       name_, in, out, kernels::kFloat8Multiple);
}

void Float8Linear::set_memory(uint8_t* codes, Float8Scale* scales) {
  codes_ = codes;
  weight_scales_ = scales;
}

void Float8Linear::check_rows(int64_t rows) const {
  if (rows % kernels::kFloat8Multiple == 0) return;
  fail(ErrorKind::invalid,
       "--fp8-format: {} takes {} tokens at a time, but FP8 products need multiples of {}: change "
       "--micro-batch-size or --seq-length, or leave --fp8-format out",
       name_, rows, kernels::kFloat8Multiple);
}

Float8 Float8Linear::format(Float8Tensor tensor) const {
  return tensor == Float8Tensor::gradient ? state_.options().gradients : Float8::e4m3;
}

// Evaluations are not added to the history.
float* Float8Linear::maximum(const Pass& pass, Float8Tensor tensor) const {
  return pass.trains ? state_.maximum(tensor, index_) : nullptr;
}

// A scale from present values is at `current`.
const Float8Scale* Float8Linear::scale_of(Pass& pass, Float8Scale* current, Float8Tensor tensor,
                                          ConstArray x, int64_t count) const {
  if (!state_.is_current(index_)) return state_.scale(tensor, index_);
  const ArenaScope scope(pass.scratch);
  auto* const maximum = pass.scratch.take<float>(1);
  pass.kernels.run(kernels::AbsoluteMaximum{.count = count, .x = x, .maximum = maximum});
  pass.kernels.run(
      kernels::CurrentScale{.format = format(tensor), .maximum = maximum, .scale = current});
  return current;
}

// Rounds x, or what `source` sets x to: on the way there where the scale does not depend on it.
// Returns the scale, which is `current` if it is from present values.
template <typename Operation>
const Float8Scale* Float8Linear::round(Pass& pass, Float8Scale* current, Float8Tensor tensor,
                                       const kernels::Quantize& x, const Operation* source,
                                       bool only_rounded) const {
  kernels::Quantize rounding = x;
  rounding.to.format = format(tensor);
  rounding.to.maximum = maximum(pass, tensor);
  if (source != nullptr && !state_.is_current(index_)) {
    Operation both = *source;
    both.rounded = rounding.to;
    both.rounded.scale = scale_of(pass, current, tensor, x.x, x.rows * x.width);
    both.only_rounded = only_rounded;
    pass.kernels.run(both);
    return both.rounded.scale;
  }
  if (source != nullptr) pass.kernels.run(*source);
  rounding.to.scale = scale_of(pass, current, tensor, x.x, x.rows * x.width);
  pass.kernels.run(rounding);
  return rounding.to.scale;
}

// Done once for all micro-batches with the same parameters.
void Float8Linear::round_weights(Pass& pass, std::span<const ConstArray> weights) const {
  if (std::exchange(version_, pass.parameters_version) == pass.parameters_version) return;
  shares_scale_ = !state_.is_current(index_);
  const Float8Scale* const scale =
      shares_scale_ ? state_.scale(Float8Tensor::weight, index_) : nullptr;
  pass.kernels.run(kernels::QuantizeEach{.rows = out_,
                                         .width = in_,
                                         .x = weights,
                                         .to = {.format = format(Float8Tensor::weight),
                                                .scale = scale,
                                                .by_row = codes_,
                                                .by_column = codes_ + weights_ * in_ * out_,
                                                .maximum = maximum(pass, Float8Tensor::weight)},
                                         .scales = weight_scales_});
  if (!shares_scale_) return;
  // A step's last micro-batch needs the scale that the first one rounded by.
  pass.kernels.run(kernels::Copy{
      .count = 2, .x = ConstArray(&scale->inverse), .y = Array(&weight_scales_->inverse)});
}

Float8Input Float8Linear::forward(Pass& pass, int64_t rows, const Parameter& weight,
                                  ConstArray bias, ConstArray x, Array y, bool keeps,
                                  const kernels::ActivationForward* source) const {
  check_rows(rows);
  const ConstArray own = weight.value;
  round_weights(pass, {&own, 1});
  uint8_t* const transposed = keeps && pass.trains ? pass.kept.take<uint8_t>(rows * in_) : nullptr;
  const ArenaScope scope(pass.scratch);
  auto* const codes = pass.scratch.take<uint8_t>(rows * in_);
  const Float8Scale* const scale =
      round(pass, pass.kept.take<Float8Scale>(1), Float8Tensor::input,
            {.rows = rows, .width = in_, .x = x, .to = {.by_row = codes, .by_column = transposed}},
            source, keeps);
  pass.kernels.run(kernels::Float8Matmul{.m = rows,
                                         .n = out_,
                                         .k = in_,
                                         .a = {codes, Float8::e4m3, scale},
                                         .b = {codes_, Float8::e4m3, weight_scales_},
                                         .c = y,
                                         .fast = true,
                                         .bias = bias});
  return {scale, transposed};
}

Float8Linear::Gradient Float8Linear::rounded(Pass& pass, int64_t rows, ConstArray dy,
                                             const kernels::ActivationBackward* source) const {
  const bool has_columns = state_.options().weight_gradients;
  auto* const by_row = pass.scratch.take<uint8_t>(rows * out_);
  uint8_t* const by_column = has_columns ? pass.scratch.take<uint8_t>(rows * out_) : nullptr;
  const Float8Scale* const scale = round(
      pass, pass.scratch.take<Float8Scale>(1), Float8Tensor::gradient,
      {.rows = rows, .width = out_, .x = dy, .to = {.by_row = by_row, .by_column = by_column}},
      source, has_columns);
  const Float8 type = format(Float8Tensor::gradient);
  return {{by_row, type, scale}, {by_column, type, scale}};
}

void Float8Linear::input_gradient(Pass& pass, int64_t rows, const Gradient& gradient, Array dx,
                                  bool accumulate) const {
  pass.kernels.run(kernels::Float8Matmul{.m = rows,
                                         .n = in_,
                                         .k = out_,
                                         .a = gradient.by_row,
                                         .b = {codes_ + in_ * out_, Float8::e4m3, weight_scales_},
                                         .c = dx,
                                         .accumulate = accumulate});
}

void Float8Linear::weight_gradient(Pass& pass, int64_t rows, const Parameter& weight,
                                   const Float8Input& input, ConstArray x, ConstArray dy,
                                   const Gradient& gradient) const {
  const kernels::Gradient sum = weight.take_gradient();
  if (!state_.options().weight_gradients) {
    pass.kernels.run(kernels::Matmul{.m = out_,
                                     .n = in_,
                                     .k = rows,
                                     .a = dy,
                                     .b = x,
                                     .c = sum.array,
                                     .a_transposed = true,
                                     .accumulate = sum.accumulate});
    return;
  }
  const ArenaScope scope(pass.scratch);
  const uint8_t* transposed = input.transposed;
  if (transposed == nullptr) {
    auto* const codes = pass.scratch.take<uint8_t>(rows * in_);
    pass.kernels.run(kernels::Quantize{
        .rows = rows, .width = in_, .x = x, .to = {.scale = input.scale, .by_column = codes}});
    transposed = codes;
  }
  pass.kernels.run(kernels::Float8Matmul{.m = out_,
                                         .n = in_,
                                         .k = rows,
                                         .a = gradient.by_column,
                                         .b = {transposed, Float8::e4m3, input.scale},
                                         .c = sum.array,
                                         .accumulate = sum.accumulate});
}

template <typename Operation>
Float8Matrix Float8Linear::rounded_rows(Pass& pass, Float8Tensor tensor, int64_t rows, ConstArray x,
                                        uint8_t* codes, Float8Scale* current,
                                        const Operation* source, bool only_rounded) const {
  const int64_t width = tensor == Float8Tensor::gradient ? out_ : in_;
  const Float8Scale* const scale =
      round(pass, current, tensor, {.rows = rows, .width = width, .x = x, .to = {.by_row = codes}},
            source, only_rounded);
  return {codes, format(tensor), scale};
}
template Float8Matrix Float8Linear::rounded_rows(Pass&, Float8Tensor, int64_t, ConstArray, uint8_t*,
                                                 Float8Scale*, const kernels::ActivationForward*,
                                                 bool) const;
template Float8Matrix Float8Linear::rounded_rows(Pass&, Float8Tensor, int64_t, ConstArray, uint8_t*,
                                                 Float8Scale*, const kernels::ActivationBackward*,
                                                 bool) const;

void Float8Linear::grouped(Pass& pass, Float8Tensor tensor, int64_t rows, const int64_t* offsets,
                           std::span<const ConstArray> weights, const Float8Matrix& x,
                           Array y) const {
  round_weights(pass, weights);
  const bool turned = tensor == Float8Tensor::gradient;
  pass.kernels.run(kernels::GroupedFloat8Matmul{.n = turned ? in_ : out_,
                                                .k = turned ? out_ : in_,
                                                .rows = rows,
                                                .groups = weights_,
                                                .offsets = offsets,
                                                .a = x,
                                                .b = codes_ + (turned ? weights_ * in_ * out_ : 0),
                                                .scales = weight_scales_,
                                                .shares_scale = shares_scale_,
                                                .c = y});
}

void Float8Linear::grouped_gradients(Pass& pass, int64_t rows, int64_t most, const int64_t* offsets,
                                     const Float8Rows& x, const Float8Rows& dy,
                                     std::span<const Array> gradients, bool accumulate) const {
  const ArenaScope scope(pass.scratch);
  const int64_t columns = kernels::grouped_columns(weights_, most);
  const auto transposed = [&](const Float8Rows& from, int64_t width) {
    auto* const codes = pass.scratch.take<uint8_t>(width * columns);
    const bool is_copy = from.tokens.data != nullptr;
    Float8Matrix matrix = is_copy ? from.tokens : from.rows;
    pass.kernels.run(kernels::GroupedTranspose{.rows = rows,
                                               .width = width,
                                               .groups = weights_,
                                               .offsets = offsets,
                                               .index = is_copy ? from.index : nullptr,
                                               .divisor = from.divisor,
                                               .x = matrix.data,
                                               .y = codes});
    matrix.data = codes;
    return matrix;
  };
  const Float8Matrix a = transposed(dy, out_), b = transposed(x, in_);
  pass.kernels.run(kernels::GroupedFloat8Gradient{.m = out_,
                                                  .n = in_,
                                                  .rows = rows,
                                                  .offsets = offsets,
                                                  .a = a,
                                                  .b = b,
                                                  .c = gradients,
                                                  .accumulate = accumulate});
}

}  // namespace ferry
