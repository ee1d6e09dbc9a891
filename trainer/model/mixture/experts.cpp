#include "trainer/model/mixture/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

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
                           int64_t in, int64_t out)
    : in_(in), out_(out) {
  for (const std::string& name : names) {
    weights_.add(parameters.get(name + ".weight", in * out));
    if (const Parameter bias = parameters.find(name + ".bias", out)) biases_.add(bias);
  }
}

void ExpertLinear::forward(Pass& pass, const Rows& rows, ConstArray x, Array y) const {
  pass.kernels.run(kernels::GroupedMatmul{.n = out_,
                                          .k = in_,
                                          .rows = rows.count,
                                          .offsets = rows.offsets,
                                          .a = x,
                                          .b = weights_.values,
                                          .c = y,
                                          .b_transposed = true});
  if (biases_.values.empty()) return;
  pass.kernels.run(kernels::GroupedBias{.width = out_,
                                        .rows = rows.count,
                                        .offsets = rows.offsets,
                                        .bias = biases_.values,
                                        .row_scale = rows.bias_scale,
                                        .y = y});
}

void ExpertLinear::backward(Pass& pass, const Rows& rows, ConstArray x, ConstArray dy,
                            Array dx) const {
  pass.kernels.run(kernels::GroupedMatmulGradient{.m = out_,
                                                  .n = in_,
                                                  .rows = rows.count,
                                                  .offsets = rows.offsets,
                                                  .a = dy,
                                                  .b = x,
                                                  .c = weights_.gradients,
                                                  .accumulate = weights_.take_gradients()});
  pass.kernels.run(kernels::GroupedMatmul{.n = in_,
                                          .k = out_,
                                          .rows = rows.count,
                                          .offsets = rows.offsets,
                                          .a = dy,
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
  input_ = ExpertLinear(parameters, inputs, hidden_, up_width_);
  output_ = ExpertLinear(parameters, outputs, width_, hidden_);
}

// The worst case: all tokens of all ranks choose this rank's experts.
int64_t Experts::most_rows(const Pass& pass) const {
  if (is_alone(pass)) return own_count(pass);
  return pass.own_rows() * pass.ranks.experts.size() * std::min(chosen_, own_experts_);
}

void Experts::order_own(Pass& pass, const int32_t* taken, Saved& saved) const {
  const int64_t numbers = experts_ * split_.parts;
  auto* const offsets = pass.kept.take<int64_t>(numbers + 1);
  saved.choice_of = pass.kept.take<int32_t>(own_count(pass));
  saved.row_of = pass.kept.take<int32_t>(own_count(pass));
  pass.kernels.run(kernels::ExpertOrder{.tokens = pass.own_rows(),
                                        .chosen = chosen_,
                                        .experts = experts_,
                                        .parts = split_.parts,
                                        .experts_of_rank = own_experts_,
                                        .taken = taken,
                                        .offsets = offsets,
                                        .choice_of = saved.choice_of,
                                        .row_of = saved.row_of});
  if (is_alone(pass)) {
    saved.offsets = offsets;
    saved.rows = own_count(pass);
  } else {
    order_arrivals(pass, offsets, saved);
  }
}

// Ranks exchange how many rows they send to each expert; received rows are ordered by sender and
// must be sorted by expert.
void Experts::order_arrivals(Pass& pass, const int64_t* own_offsets, Saved& saved) const {
  Communicator& ranks = pass.ranks.experts;
  const auto size = static_cast<size_t>(ranks.size()), own = static_cast<size_t>(own_experts_);
  // Planning computes nothing and assumes an even distribution.
  std::vector<int64_t> offsets(size * own + 1);
  for (size_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = own_count(pass) * static_cast<int64_t>(i) / static_cast<int64_t>(size * own);
  }
  pass.kernels.download(own_offsets, offsets.data(), offsets.size() * sizeof(int64_t));
  pass.kernels.wait();
  std::vector<int64_t> sends(size * own);
  for (size_t i = 0; i < sends.size(); ++i) sends[i] = offsets[i + 1] - offsets[i];
  std::vector<int64_t> arrivals = sends;
  ranks.exchange(sends, arrivals);
  std::vector<int32_t> expert_of;
  for (size_t rank = 0; rank < size; ++rank) {
    saved.sent.push_back(offsets[(rank + 1) * own] - offsets[rank * own]);
    int64_t received = 0;
    for (size_t expert = 0; expert < own; ++expert) {
      const int64_t rows = arrivals[rank * own + expert];
      expert_of.insert(expert_of.end(), static_cast<size_t>(rows), static_cast<int32_t>(expert));
      received += rows;
    }
    saved.received.push_back(received);
    saved.rows += received;
  }
  const int64_t most = most_rows(pass);
  auto* const taken = pass.kept.take<int32_t>(most);
  saved.offsets = pass.kept.take<int64_t>(own_experts_ + 1);
  saved.arrival_of = pass.kept.take<int32_t>(most);
  saved.row_of_arrival = pass.kept.take<int32_t>(most);
  pass.kernels.upload(expert_of.data(), taken, expert_of.size() * sizeof(int32_t));
  pass.kernels.run(kernels::ExpertOrder{.tokens = saved.rows,
                                        .chosen = 1,
                                        .experts = own_experts_,
                                        .experts_of_rank = own_experts_,
                                        .taken = taken,
                                        .offsets = saved.offsets,
                                        .choice_of = saved.arrival_of,
                                        .row_of = saved.row_of_arrival});
}

void Experts::to_experts(Pass& pass, const Saved& saved, ConstArray own, Array rows) const {
  const ArenaScope scope(pass.scratch);
  const bool alone = is_alone(pass);
  const Array sent = alone ? rows : pass.scratch.take(own_count(pass) * hidden_, own.type);
  pass.kernels.run(kernels::GatherRows{.rows = own_count(pass),
                                       .width = hidden_,
                                       .index = saved.choice_of,
                                       .row_of = saved.row_of,
                                       .divisor = chosen_ * split_.parts,
                                       .x = own,
                                       .y = sent});
  if (alone) return;
  const Array arrived = pass.scratch.take(most_rows(pass) * hidden_, own.type);
  Communicator& ranks = pass.ranks.experts;
  ranks.wait(
      ranks.all_to_all(sent, times(saved.sent, hidden_), arrived, times(saved.received, hidden_)));
  pass.kernels.run(kernels::GatherRows{
      .rows = saved.rows, .width = hidden_, .index = saved.arrival_of, .x = arrived, .y = rows});
}

void Experts::from_experts(Pass& pass, const Saved& saved, ConstArray rows, Array own) const {
  const ArenaScope scope(pass.scratch);
  ConstArray back = rows;
  if (!is_alone(pass)) {
    const Array ordered = pass.scratch.take(most_rows(pass) * hidden_, own.type);
    pass.kernels.run(kernels::GatherRows{.rows = saved.rows,
                                         .width = hidden_,
                                         .index = saved.row_of_arrival,
                                         .x = rows,
                                         .y = ordered});
    const Array returned = pass.scratch.take(own_count(pass) * hidden_, own.type);
    Communicator& ranks = pass.ranks.experts;
    ranks.wait(ranks.all_to_all(ordered, times(saved.received, hidden_), returned,
                                times(saved.sent, hidden_)));
    back = returned;
  }
  pass.kernels.run(kernels::CombineRows{.tokens = pass.own_rows(),
                                        .chosen = chosen_ * split_.parts,
                                        .width = hidden_,
                                        .row_of = saved.row_of,
                                        .x = back,
                                        .y = own});
}

void Experts::weights_to_experts(Pass& pass, const Saved& saved, const float* own) const {
  const ArenaScope scope(pass.scratch);
  const bool alone = is_alone(pass);
  float* const sent = alone ? saved.weights : pass.scratch.take<float>(own_count(pass));
  pass.kernels.run(kernels::GatherNumbers{.count = own_count(pass),
                                          .index = saved.choice_of,
                                          .divisor = split_.parts,
                                          .x = own,
                                          .y = sent});
  if (alone) return;
  auto* const arrived = pass.scratch.take<float>(most_rows(pass));
  Communicator& ranks = pass.ranks.experts;
  ranks.wait(ranks.all_to_all(ConstArray(sent), saved.sent, Array(arrived), saved.received));
  pass.kernels.run(kernels::GatherNumbers{
      .count = saved.rows, .index = saved.arrival_of, .x = arrived, .y = saved.weights});
}

void Experts::weights_from_experts(Pass& pass, const Saved& saved, const float* rows,
                                   float* own) const {
  const ArenaScope scope(pass.scratch);
  const float* back = rows;
  if (!is_alone(pass)) {
    auto* const ordered = pass.scratch.take<float>(most_rows(pass));
    pass.kernels.run(kernels::GatherNumbers{
        .count = saved.rows, .index = saved.row_of_arrival, .x = rows, .y = ordered});
    auto* const returned = pass.scratch.take<float>(own_count(pass));
    Communicator& ranks = pass.ranks.experts;
    ranks.wait(ranks.all_to_all(ConstArray(ordered), saved.received, Array(returned), saved.sent));
    back = returned;
  }
  pass.kernels.run(kernels::GatherNumbers{.count = pass.own_rows() * chosen_,
                                          .index = saved.row_of,
                                          .terms = split_.parts,
                                          .x = back,
                                          .y = own});
}

void Experts::activate(Pass& pass, const Saved& saved, Array active) const {
  pass.kernels.run(kernels::ActivationForward{.kind = activation_,
                                              .rows = saved.rows,
                                              .width = width_,
                                              .x = saved.up,
                                              .y = active,
                                              .glu = glu_,
                                              .row_scale = saved.weights});
}

Experts::Saved Experts::forward(Pass& pass, const int32_t* taken, const float* weights,
                                ConstArray x, Array y) const {
  Saved saved;
  order_own(pass, taken, saved);
  const ArenaScope scope(pass.scratch);
  const int64_t most = most_rows(pass);
  saved.weights = pass.kept.take<float>(most);
  saved.input = pass.kept.take(most * hidden_, x.type);
  saved.up = pass.kept.take(most * up_width_, x.type);
  Arena& arena = pass.recompute.expert_activation ? pass.scratch : pass.kept;
  saved.active = arena.take(most * width_, x.type);
  to_experts(pass, saved, x, saved.input);
  weights_to_experts(pass, saved, weights);
  input_.forward(pass, {saved.rows, saved.offsets}, saved.input, saved.up);
  activate(pass, saved, saved.active);
  const Array output = pass.scratch.take(most * hidden_, x.type);
  // The activation has the rows' weights, which the output's bias has, too.
  output_.forward(pass, {saved.rows, saved.offsets, saved.weights}, saved.active, output);
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
  Array active = saved.active;
  if (pass.recompute.expert_activation) {
    active = pass.scratch.take(most * width_, dx.type);
    activate(pass, saved, active);
  }
  to_experts(pass, saved, dy, d);
  const ExpertLinear::Rows rows{saved.rows, saved.offsets},
      weighted{saved.rows, saved.offsets, saved.weights};
  output_.backward(pass, rows, active, d, dactive);
  pass.kernels.run(kernels::ActivationBackward{.kind = activation_,
                                               .rows = saved.rows,
                                               .width = width_,
                                               .x = saved.up,
                                               .dy = dactive,
                                               .dx = dup,
                                               .glu = glu_,
                                               .row_scale = saved.weights,
                                               .drow_scale = drow_weights});
  output_.bias_backward(pass, weighted, d, drow_weights);
  input_.backward(pass, rows, saved.input, dup, d);
  input_.bias_backward(pass, rows, dup, nullptr);
  from_experts(pass, saved, d, dx);
  weights_from_experts(pass, saved, drow_weights, dweights);
}

}  // namespace ferry
