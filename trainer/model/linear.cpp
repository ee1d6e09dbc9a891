#include "trainer/model/linear.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Gradient;
using kernels::Matmul;

namespace {

// Gradients of y = x · Wᵀ with respect to W, and to x.
void weight_gradient(Pass& pass, const Parameter& weight, int64_t in, int64_t out, ConstArray x,
                     ConstArray dy) {
  const Gradient gradient = weight.take_gradient();
  pass.kernels.run(Matmul{.m = out,
                          .n = in,
                          .k = pass.rows(),
                          .a = dy,
                          .b = x,
                          .c = gradient.array,
                          .a_transposed = true,
                          .accumulate = gradient.accumulate});
}

void input_gradient(Pass& pass, const Parameter& weight, int64_t in, int64_t out, ConstArray dy,
                    Array dx) {
  pass.kernels.run(
      Matmul{.m = pass.rows(), .n = in, .k = out, .a = dy, .b = weight.value, .c = dx});
}

void bias_gradient(Pass& pass, const Parameter& bias, int64_t rows, int64_t out, ConstArray dy) {
  pass.kernels.run(
      kernels::SumRows{.rows = rows, .width = out, .x = dy, .sum = bias.take_gradient()});
}

}  // namespace

namespace {

// Communication between tensor ranks that overlaps with kernels.
struct ComingRows {
  ConstArray rows;
  Communicator::Ticket ticket = 0;
};

ComingRows begin_all_rows(Pass& pass, ConstArray x, int64_t width) {
  if (!pass.ranks.sequence_parallel) return {x};
  const Array all = pass.scratch.take(pass.rows() * width, x.type);
  return {all, pass.ranks.tensor.all_gather(x, all, pass.own_rows() * width)};
}

Communicator::Ticket begin_sum_rows(Pass& pass, Array partial, Array sum, int64_t width) {
  Communicator& tensor = pass.ranks.tensor;
  if (!pass.ranks.sequence_parallel) return tensor.all_reduce(partial, pass.rows() * width);
  return tensor.reduce_scatter(partial, sum, pass.own_rows() * width);
}

void end_sum_rows(Pass& pass, Communicator::Ticket ticket, Array partial, Array sum,
                  int64_t width) {
  pass.ranks.tensor.wait(ticket);
  if (!pass.ranks.sequence_parallel && partial.data != sum.data) {
    pass.kernels.run(kernels::Copy{.count = pass.rows() * width, .x = partial, .y = sum});
  }
}

}  // namespace

ConstArray all_rows(Pass& pass, ConstArray x, int64_t width) {
  const ComingRows all = begin_all_rows(pass, x, width);
  pass.ranks.tensor.wait(all.ticket);
  return all.rows;
}

void sum_rows(Pass& pass, Array partial, Array sum, int64_t width) {
  end_sum_rows(pass, begin_sum_rows(pass, partial, sum, width), partial, sum, width);
}

ColumnLinear::ColumnLinear(const ParameterSet& parameters, const std::string& name, int64_t in,
                           int64_t out)
    : weight_(parameters.get(name + ".weight", in * out)),
      bias_(parameters.find(name + ".bias", out)),
      float8_(parameters.float8(name, in, out)),
      in_(in),
      out_(out) {}

Float8Input ColumnLinear::forward(Pass& pass, ConstArray x, const Outputs& to, bool keeps) const {
  const ArenaScope scope(pass.scratch);
  if (float8_ != nullptr) {
    const ConstArray all = all_rows(pass, x, in_);
    const Float8Input input =
        float8_->forward(pass, pass.rows(), weight_, bias_.value, all, to.y, keeps);
    if (to.activated) {
      pass.kernels.run(kernels::ActivationForward{
          .kind = to.activation, .rows = pass.rows(), .width = out_, .x = to.y, .y = to.activated});
    }
    return input;
  }
  pass.kernels.run(Matmul{.m = pass.rows(),
                          .n = out_,
                          .k = in_,
                          .a = all_rows(pass, x, in_),
                          .b = weight_.value,
                          .c = to.y,
                          .b_transposed = true,
                          .bias = bias_.value,
                          .activation = to.activation,
                          .activated = to.activated});
  return {};
}

void ColumnLinear::backward(Pass& pass, const Float8Input& input, ConstArray x, ConstArray dy,
                            Array dx) const {
  if (bias_) bias_gradient(pass, bias_, pass.rows(), out_, dy);
  backward_without_bias(pass, input, x, dy, dx);
}

Gradient ColumnLinear::take_bias_gradient() const {
  return bias_ ? bias_.take_gradient() : Gradient();
}

// Gathering x overlaps with one product, and reducing the input's gradient with the other.
void ColumnLinear::backward_without_bias(Pass& pass, const Float8Input& input, ConstArray x,
                                         ConstArray dy, Array dx,
                                         const kernels::ActivationBackward* source) const {
  const ArenaScope scope(pass.scratch);
  if (source != nullptr && float8_ == nullptr) pass.kernels.run(*source);
  const ComingRows all = begin_all_rows(pass, x, in_);
  const Array partial =
      pass.ranks.sequence_parallel ? pass.scratch.take(pass.rows() * in_, dx.type) : dx;
  Float8Linear::Gradient rounded;
  if (float8_ != nullptr) {
    rounded = float8_->rounded(pass, pass.rows(), dy, source);
    float8_->input_gradient(pass, pass.rows(), rounded, partial);
  } else {
    input_gradient(pass, weight_, in_, out_, dy, partial);
  }
  const Communicator::Ticket sum = begin_sum_rows(pass, partial, dx, in_);
  pass.ranks.tensor.wait(all.ticket);
  if (float8_ != nullptr) {
    float8_->weight_gradient(pass, pass.rows(), weight_, input, all.rows, dy, rounded);
  } else {
    weight_gradient(pass, weight_, in_, out_, all.rows, dy);
  }
  end_sum_rows(pass, sum, partial, dx, in_);
}

RowLinear::RowLinear(const ParameterSet& parameters, const std::string& name, int64_t in,
                     int64_t out)
    : weight_(parameters.get(name + ".weight", in * out)),
      bias_(parameters.find(name + ".bias", out)),
      float8_(parameters.float8(name, in, out)),
      in_(in),
      out_(out) {}

Float8Input RowLinear::forward(Pass& pass, ConstArray x, Array y, bool keeps,
                               const kernels::ActivationForward* source) const {
  const ArenaScope scope(pass.scratch);
  const Array partial =
      pass.ranks.sequence_parallel ? pass.scratch.take(pass.rows() * out_, y.type) : y;
  const ConstArray bias = pass.ranks.tensor.rank() == 0 ? bias_.value : Array();
  Float8Input input;
  if (float8_ != nullptr) {
    input = float8_->forward(pass, pass.rows(), weight_, bias, x, partial, keeps, source);
  } else {
    if (source != nullptr) pass.kernels.run(*source);
    pass.kernels.run(Matmul{.m = pass.rows(),
                            .n = out_,
                            .k = in_,
                            .a = x,
                            .b = weight_.value,
                            .c = partial,
                            .b_transposed = true,
                            .bias = bias});
  }
  sum_rows(pass, partial, y, out_);
  return input;
}

void RowLinear::backward(Pass& pass, const Float8Input& input, ConstArray x, ConstArray dy,
                         Array dx) const {
  const ArenaScope scope(pass.scratch);
  const ConstArray all = all_rows(pass, dy, out_);
  if (bias_) bias_gradient(pass, bias_, pass.rows(), out_, all);
  if (float8_ != nullptr) {
    const Float8Linear::Gradient rounded = float8_->rounded(pass, pass.rows(), all);
    float8_->weight_gradient(pass, pass.rows(), weight_, input, x, all, rounded);
    float8_->input_gradient(pass, pass.rows(), rounded, dx);
    return;
  }
  weight_gradient(pass, weight_, in_, out_, x, all);
  input_gradient(pass, weight_, in_, out_, all, dx);
}

ReplicatedLinear::ReplicatedLinear(const ParameterSet& parameters, const std::string& weight,
                                   int64_t in, int64_t out, int64_t tensor_ranks,
                                   const std::string& bias)
    : bias_(parameters.find(bias, out)), in_(in), out_(out) {
  const bool is_whole = parameters.elements(weight) == in * out;
  weight_ = parameters.get(weight, is_whole ? in * out : in * out / tensor_ranks);
  if (!is_shared()) float8_ = parameters.float8(weight.substr(0, weight.rfind('.')), in, out);
}

ConstArray ReplicatedLinear::whole_weight(Pass& pass) const {
  if (!is_shared()) return weight_.value;
  const Array whole = pass.scratch.take(in_ * out_, weight_.value.type);
  Communicator& tensor = pass.ranks.tensor;
  tensor.wait(tensor.all_gather(weight_.value, whole, weight_.elements));
  return whole;
}

Float8Input ReplicatedLinear::forward(Pass& pass, ConstArray x, Array y) const {
  const ArenaScope scope(pass.scratch);
  if (float8_ != nullptr) {
    return float8_->forward(pass, pass.own_rows(), weight_, bias_.value, x, y, false);
  }
  pass.kernels.run(Matmul{.m = pass.own_rows(),
                          .n = out_,
                          .k = in_,
                          .a = x,
                          .b = whole_weight(pass),
                          .c = y,
                          .b_transposed = true,
                          .bias = bias_.value});
  return {};
}

void ReplicatedLinear::backward(Pass& pass, const Float8Input& input, ConstArray x, ConstArray dy,
                                Array dx, bool accumulate) const {
  const ArenaScope scope(pass.scratch);
  if (bias_) bias_gradient(pass, bias_, pass.own_rows(), out_, dy);
  if (float8_ != nullptr) {
    const Float8Linear::Gradient rounded = float8_->rounded(pass, pass.own_rows(), dy);
    float8_->input_gradient(pass, pass.own_rows(), rounded, dx, accumulate);
    float8_->weight_gradient(pass, pass.own_rows(), weight_, input, x, dy, rounded);
    return;
  }
  pass.kernels.run(Matmul{.m = pass.own_rows(),
                          .n = in_,
                          .k = out_,
                          .a = dy,
                          .b = whole_weight(pass),
                          .c = dx,
                          .accumulate = accumulate});
  const bool sums = is_shared() && pass.ranks.sequence_parallel;
  // Without sequence parallelism all ranks compute the same: each takes its part.
  const Gradient gradient =
      is_shared() ? Gradient(pass.scratch.take(in_ * out_, weight_.gradient.type), false)
                  : weight_.take_gradient();
  pass.kernels.run(Matmul{.m = out_,
                          .n = in_,
                          .k = pass.own_rows(),
                          .a = dy,
                          .b = x,
                          .c = gradient.array,
                          .a_transposed = true,
                          .accumulate = gradient.accumulate});
  if (!is_shared()) return;
  Communicator& tensor = pass.ranks.tensor;
  const Array own = gradient.array.from(tensor.rank() * weight_.elements);
  if (sums) tensor.wait(tensor.reduce_scatter(gradient.array, own, weight_.elements));
  const Array sum = weight_.take_cleared_gradient(pass.kernels);
  pass.kernels.run(kernels::Add{.count = weight_.elements, .a = sum, .b = own, .y = sum});
}

}  // namespace ferry
