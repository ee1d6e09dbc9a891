#include "trainer/model/mixture/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Float8Matrix;
using kernels::Float8Scale;

void ExpertLinear::Each::add(const Parameter& parameter) {
  values.push_back(parameter.value);
  gradients.push_back(parameter.gradient);
  parameters.push_back(parameter);
}

bool ExpertLinear::Each::take_gradients() const {
  bool accumulate = true;
  for (const Parameter& each : parameters) accumulate = each.take_gradient().accumulate;
  return accumulate;
}

ExpertLinear::ExpertLinear(const ParameterSet& parameters, const std::vector<std::string>& names,
                           const std::string& together, int64_t in, int64_t out)
    : float8_(parameters.float8(together, in, out, static_cast<int64_t>(names.size()))),
      in_(in),
      out_(out) {
  for (const std::string& name : names) {
    weights_.add(parameters.get(name + ".weight", in * out));
    if (const Parameter bias = parameters.find(name + ".bias", out)) biases_.add(bias);
  }
}

void ExpertLinear::forward(Pass& pass, const Rows& rows, const Factor& x, Array y) const {
  if (float8_ != nullptr) {
    float8_->grouped(pass, Float8Tensor::input, rows.count, rows.offsets, weights_.values,
                     x.codes.rows, y);
  } else {
    pass.kernels.run(kernels::GroupedMatmul{.n = out_,
                                            .k = in_,
                                            .rows = rows.count,
                                            .offsets = rows.offsets,
                                            .a = x.values,
                                            .b = weights_.values,
                                            .c = y,
                                            .b_transposed = true});
  }
  if (biases_.values.empty()) return;
  pass.kernels.run(kernels::GroupedBias{.width = out_,
                                        .rows = rows.count,
                                        .offsets = rows.offsets,
                                        .bias = biases_.values,
                                        .row_scale = rows.bias_scale,
                                        .y = y});
}

void ExpertLinear::backward(Pass& pass, const Rows& rows, const Factor& x, const Factor& dy,
                            Array dx) const {
  const bool accumulate = weights_.take_gradients();
  if (takes_values()) {
    pass.kernels.run(kernels::GroupedMatmulGradient{.m = out_,
                                                    .n = in_,
                                                    .rows = rows.count,
                                                    .offsets = rows.offsets,
                                                    .a = dy.values,
                                                    .b = x.values,
                                                    .c = weights_.gradients,
                                                    .accumulate = accumulate});
  } else {
    float8_->grouped_gradients(pass, rows.count, rows.most, rows.offsets, x.codes, dy.codes,
                               weights_.gradients, accumulate);
  }
  if (float8_ != nullptr) {
    return float8_->grouped(pass, Float8Tensor::gradient, rows.count, rows.offsets, weights_.values,
                            dy.codes.rows, dx);
  }
  pass.kernels.run(kernels::GroupedMatmul{.n = in_,
                                          .k = out_,
                                          .rows = rows.count,
                                          .offsets = rows.offsets,
                                          .a = dy.values,
                                          .b = weights_.values,
                                          .c = dx});
}

void ExpertLinear::bias_backward(Pass& pass, const Rows& rows, ConstArray dy,
                                 float* dbias_scale) const {
  if (biases_.values.empty()) return;
  pass.kernels.run(kernels::GroupedBiasGradient{.width = out_,
                                                .rows = rows.count,
                                                .offsets = rows.offsets,
                                                .dy = dy,
                                                .row_scale = rows.bias_scale,
                                                .dbias = biases_.gradients,
                                                .accumulate = biases_.take_gradients(),
                                                .bias = biases_.values,
                                                .drow_scale = dbias_scale});
}

namespace {

std::vector<int64_t> times(const std::vector<int64_t>& counts, int64_t factor) {
  std::vector<int64_t> products(counts);
  for (int64_t& count : products) count *= factor;
  return products;
}

// Runs the operation. Returns what it sets, x: in FP8, too, in `arena`, if `linear` computes in it,
// and only so unless `keeps`.
template <typename Operation>
ExpertLinear::Factor rounded(Pass& pass, const Float8Linear* linear, Float8Tensor tensor,
                             int64_t most, ConstArray x, int64_t width, const Operation& operation,
                             bool keeps, Arena& arena) {
  if (linear == nullptr) {
    pass.kernels.run(operation);
    return {x, {}};
  }
  auto* const codes = arena.take<uint8_t>(most * width);
  auto* const current = arena.take<Float8Scale>(1);
  return {x,
          {.rows = linear->rounded_rows(pass, tensor, operation.rows, x, codes, current, &operation,
                                        !keeps),
           .tokens = {}}};
}

}  // namespace

Experts::Experts(const ParameterSet& parameters, const std::string& prefix, const Architecture& a,
                 const ExpertSplit& split)
    : activation_(activation_of(a)),
      glu_(glu_of(a)),
      split_(split),
      hidden_(a.hidden),
      width_(a.expert_ffn / split.parts),
      up_width_(a.gated() ? 2 * width_ : width_),
      experts_(a.experts),
      own_experts_(a.experts / split.ranks),
      chosen_(a.experts_per_token) {
  std::vector<std::string> inputs, outputs;
  for (int64_t i = 0; i < own_experts_; ++i) {
    const std::string name = fmt::format("{}.{}", prefix, split.rank * own_experts_ + i);
    inputs.push_back(name + ".linear_fc1");
    outputs.push_back(name + ".linear_fc2");
  }
  input_ = ExpertLinear(parameters, inputs, prefix + ".linear_fc1", hidden_, up_width_);
  output_ = ExpertLinear(parameters, outputs, prefix + ".linear_fc2", width_, hidden_);
}

// The worst case: all tokens of all ranks choose this rank's experts.
int64_t Experts::most_rows(const Pass& pass) const {
  return most_received(pass) * std::min(chosen_, own_experts_);
}

int64_t Experts::most_sent(const Pass& pass) const {
  return pass.own_rows() * std::min(ranks(pass), chosen_ * split_.parts);
}

// Tokens that this rank has experts of, sorted by these.
void Experts::order(Pass& pass, const int32_t* taken, Saved& saved) const {
  const ArenaScope scope(pass.scratch);
  saved.parcels = pass.own_rows();
  saved.rows = saved.parcels * chosen_;
  if (!is_alone(pass)) order_parcels(pass, taken, saved);
  saved.offsets = pass.kept.take<int64_t>(own_experts_ + 1);
  saved.choice_of = pass.kept.take<int32_t>(most_rows(pass));
  saved.row_of = pass.kept.take<int32_t>(most_received(pass) * chosen_);
  // Numbers of experts go the way of any others, whose bits are kept.
  const ConstArray arrived = dispatch(pass, saved, {taken, kernels::Type::f32}, chosen_);
  pass.kernels.run(kernels::ExpertOrder{.tokens = saved.parcels,
                                        .chosen = chosen_,
                                        .first = split_.rank * own_experts_,
                                        .experts = own_experts_,
                                        .taken = static_cast<const int32_t*>(arrived.data),
                                        .offsets = saved.offsets,
                                        .choice_of = saved.choice_of,
                                        .row_of = saved.row_of});
}

// Ranks exchange how many parcels they send to each other, and how many rows these are.
void Experts::order_parcels(Pass& pass, const int32_t* taken, Saved& saved) const {
  const int64_t tokens = pass.own_rows(), size = ranks(pass);
  auto* const rank_of = pass.scratch.take<int32_t>(tokens * size);
  auto* const choices = pass.scratch.take<int64_t>(size);
  auto* const offsets = pass.scratch.take<int64_t>(size + 1);
  saved.token_of = pass.kept.take<int32_t>(most_sent(pass));
  saved.parcel_of = pass.kept.take<int32_t>(tokens * size);
  pass.kernels.run(kernels::ChosenRanks{.tokens = tokens,
                                        .chosen = chosen_,
                                        .ranks = size,
                                        .parts = split_.parts,
                                        .experts_of_rank = own_experts_,
                                        .taken = taken,
                                        .rank_of = rank_of,
                                        .choices = choices});
  pass.kernels.run(kernels::ExpertOrder{.tokens = tokens,
                                        .chosen = size,
                                        .experts = size,
                                        .taken = rank_of,
                                        .offsets = offsets,
                                        .choice_of = saved.token_of,
                                        .row_of = saved.parcel_of});
  // Planning computes nothing and assumes an even distribution.
  const auto count = static_cast<size_t>(size);
  std::vector<int64_t> rows(count, tokens * chosen_ * split_.parts / size), ends(count + 1);
  for (size_t i = 0; i <= count; ++i) ends[i] = most_sent(pass) * static_cast<int64_t>(i) / size;
  pass.kernels.download(choices, rows.data(), rows.size() * sizeof(int64_t));
  pass.kernels.download(offsets, ends.data(), ends.size() * sizeof(int64_t));
  pass.kernels.wait();
  std::vector<int64_t> sends;  // parcels and rows, for each rank
  for (size_t rank = 0; rank < count; ++rank) {
    saved.sent.push_back(ends[rank + 1] - ends[rank]);
    sends.insert(sends.end(), {saved.sent.back(), rows[rank]});
  }
  std::vector<int64_t> arrivals = sends;
  pass.ranks.experts.exchange(sends, arrivals);
  saved.parcels = saved.rows = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    saved.received.push_back(arrivals[2 * rank]);
    saved.parcels += arrivals[2 * rank];
    saved.rows += arrivals[2 * rank + 1];
  }
}

// What ranks have of each own token, [own rows, width], at those that have experts of it.
ConstArray Experts::dispatch(Pass& pass, const Saved& saved, ConstArray own, int64_t width) const {
  if (is_alone(pass)) return own;
  const Array sent = pass.scratch.take(most_sent(pass) * width, own.type);
  pass.kernels.run(
      kernels::GatherRows{.rows = std::accumulate(saved.sent.begin(), saved.sent.end(), int64_t{0}),
                          .width = width,
                          .index = saved.token_of,
                          .divisor = ranks(pass),
                          .row_of = saved.parcel_of,
                          .tokens = pass.own_rows(),
                          .x = own,
                          .y = sent});
  const Array arrived = pass.scratch.take(most_received(pass) * width, own.type);
  Communicator& ranks = pass.ranks.experts;
  ranks.wait(
      ranks.all_to_all(sent, times(saved.sent, width), arrived, times(saved.received, width)));
  return arrived;
}

// The way back: the sums over ranks of what they have of each token.
void Experts::collect(Pass& pass, const Saved& saved, ConstArray parcels, Array own,
                      int64_t width) const {
  const Array returned = pass.scratch.take(most_sent(pass) * width, own.type);
  Communicator& ranks = pass.ranks.experts;
  ranks.wait(
      ranks.all_to_all(parcels, times(saved.received, width), returned, times(saved.sent, width)));
  pass.kernels.run(kernels::CombineRows{.tokens = pass.own_rows(),
                                        .chosen = ranks.size(),
                                        .width = width,
                                        .row_of = saved.parcel_of,
                                        .x = returned,
                                        .y = own});
}

// Tokens are rounded before they are copied to rows, whose bytes are gathered by twos.
ExpertLinear::Factor Experts::to_experts(Pass& pass, const Saved& saved, ConstArray own, Array rows,
                                         const Float8Linear* linear, Float8Tensor tensor,
                                         Arena& arena) const {
  uint8_t *codes = nullptr, *tokens = nullptr;
  Float8Scale* current = nullptr;
  if (linear != nullptr) {
    codes = pass.scratch.take<uint8_t>(most_rows(pass) * hidden_);
    tokens = arena.take<uint8_t>(most_received(pass) * hidden_);
    current = arena.take<Float8Scale>(1);
  }
  const ArenaScope scope(pass.scratch);
  kernels::GatherRows copy{.rows = saved.rows,
                           .width = hidden_,
                           .index = saved.choice_of,
                           .divisor = chosen_,
                           .row_of = saved.row_of,
                           .tokens = saved.parcels,
                           .x = dispatch(pass, saved, own, hidden_),
                           .y = rows};
  if (rows) pass.kernels.run(copy);
  if (linear == nullptr) return {rows, {}};
  const Float8Matrix rounded = linear->rounded_rows<kernels::ActivationForward>(
      pass, tensor, saved.parcels, copy.x, tokens, current, nullptr, false);
  copy.width = hidden_ / 2;
  copy.x = {tokens, kernels::Type::bf16};
  copy.y = {codes, kernels::Type::bf16};
  pass.kernels.run(copy);
  return {rows,
          {.rows = {codes, rounded.format, rounded.scale},
           .tokens = rounded,
           .index = saved.choice_of,
           .divisor = chosen_}};
}

// A token's rows are summed up where they are, so that they travel as one.
void Experts::from_experts(Pass& pass, const Saved& saved, ConstArray rows, Array own) const {
  const ArenaScope scope(pass.scratch);
  const bool alone = is_alone(pass);
  const Array sums = alone ? own : pass.scratch.take(most_received(pass) * hidden_, own.type);
  pass.kernels.run(kernels::CombineRows{.tokens = saved.parcels,
                                        .chosen = chosen_,
                                        .width = hidden_,
                                        .row_of = saved.row_of,
                                        .x = rows,
                                        .y = sums});
  if (!alone) collect(pass, saved, sums, own, hidden_);
}

void Experts::weights_to_experts(Pass& pass, const Saved& saved, const float* own) const {
  const ArenaScope scope(pass.scratch);
  const ConstArray arrived = dispatch(pass, saved, ConstArray(own), chosen_);
  pass.kernels.run(kernels::GatherNumbers{.count = saved.rows,
                                          .index = saved.choice_of,
                                          .x = static_cast<const float*>(arrived.data),
                                          .y = saved.weights});
}

void Experts::weights_from_experts(Pass& pass, const Saved& saved, const float* rows,
                                   float* own) const {
  const ArenaScope scope(pass.scratch);
  const bool alone = is_alone(pass);
  float* const numbers = alone ? own : pass.scratch.take<float>(most_received(pass) * chosen_);
  pass.kernels.run(kernels::GatherNumbers{
      .count = saved.parcels * chosen_, .index = saved.row_of, .x = rows, .y = numbers});
  if (!alone) collect(pass, saved, ConstArray(numbers), Array(own), chosen_);
}

ExpertLinear::Factor Experts::activated(Pass& pass, const Saved& saved, Arena& arena) const {
  const int64_t most = most_rows(pass);
  const bool keeps = output_.takes_values();
  const Array active = (keeps ? arena : pass.scratch).take(most * width_, saved.up.type);
  return rounded(pass, output_.float8(), Float8Tensor::input, most, active, width_,
                 kernels::ActivationForward{.kind = activation_,
                                            .rows = saved.rows,
                                            .width = width_,
                                            .x = saved.up,
                                            .y = active,
                                            .glu = glu_,
                                            .row_scale = saved.weights},
                 keeps, keeps ? pass.scratch : arena);
}

Experts::Saved Experts::forward(Pass& pass, const int32_t* taken, const float* weights,
                                ConstArray x, Array y) const {
  Saved saved;
  order(pass, taken, saved);
  const ArenaScope scope(pass.scratch);
  const int64_t most = most_rows(pass);
  saved.weights = pass.kept.take<float>(most);
  const bool keeps = input_.takes_values();
  const Array input = keeps ? pass.kept.take(most * hidden_, x.type) : Array();
  saved.up = pass.kept.take(most * up_width_, x.type);
  saved.input = to_experts(pass, saved, x, input, input_.float8(), Float8Tensor::input,
                           keeps ? pass.scratch : pass.kept);
  weights_to_experts(pass, saved, weights);
  input_.forward(pass, {saved.rows, most, saved.offsets}, saved.input, saved.up);
  saved.active =
      activated(pass, saved, pass.recompute.expert_activation ? pass.scratch : pass.kept);
  const Array output = pass.scratch.take(most * hidden_, x.type);
  // The activation has the rows' weights, which the output's bias has, too.
  output_.forward(pass, {saved.rows, most, saved.offsets, saved.weights}, saved.active, output);
  from_experts(pass, saved, output, y);
  return saved;
}

void Experts::backward(Pass& pass, const Saved& saved, ConstArray dy, Array dx,
                       float* dweights) const {
  const ArenaScope scope(pass.scratch);
  const int64_t most = most_rows(pass);
  const Array d = pass.scratch.take(most * hidden_, dx.type);
  const Array dactive = pass.scratch.take(most * width_, dx.type);
  const Array dup = pass.scratch.take(most * up_width_, dx.type);
  auto* const drow_weights = pass.scratch.take<float>(most);
  const ExpertLinear::Factor active =
      pass.recompute.expert_activation ? activated(pass, saved, pass.scratch) : saved.active;
  const ExpertLinear::Factor dout =
      to_experts(pass, saved, dy, output_.takes_gradient_values() ? d : Array(), output_.float8(),
                 Float8Tensor::gradient, pass.scratch);
  const ExpertLinear::Rows rows{saved.rows, most, saved.offsets},
      weighted{saved.rows, most, saved.offsets, saved.weights};
  output_.backward(pass, rows, active, dout, dactive);
  const ExpertLinear::Factor din =
      rounded(pass, input_.float8(), Float8Tensor::gradient, most, dup, up_width_,
              kernels::ActivationBackward{.kind = activation_,
                                          .rows = saved.rows,
                                          .width = width_,
                                          .x = saved.up,
                                          .dy = dactive,
                                          .dx = dup,
                                          .glu = glu_,
                                          .row_scale = saved.weights,
                                          .drow_scale = drow_weights},
              input_.takes_gradient_values(), pass.scratch);
  output_.bias_backward(pass, weighted, d, drow_weights);
  input_.backward(pass, rows, saved.input, din, d);
  input_.bias_backward(pass, rows, dup, nullptr);
  from_experts(pass, saved, d, dx);
  weights_from_experts(pass, saved, drow_weights, dweights);
}

}  // namespace ferry
