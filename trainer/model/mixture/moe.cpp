#include "trainer/model/mixture/moe.h"

#include "trainer/model/pass/recompute.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Type;

Moe::Moe(const ParameterSet& parameters, const std::string& prefix, const Architecture& a,
         const RouterOptions& options, const ExpertSplit& split, int64_t tensor_ranks,
         kernels::Kernels& kernels)
    : architecture_(a),
      options_(options),
      experts_(parameters, prefix + ".experts.experts", a, split) {
  router_ = ReplicatedLinear(parameters, prefix + ".router.weight", a.hidden, a.experts, 1,
                             prefix + ".router.bias");
  if (a.expert_bias) expert_bias_ = parameters.get(prefix + ".router.expert_bias", a.experts);
  has_shared_ = a.shared_ffn > 0;
  if (has_shared_) {
    shared_ = Mlp(parameters, prefix + ".shared_experts", a, a.shared_ffn / tensor_ranks);
    shared_.share_input();
    const std::string gate = prefix + ".shared_experts.gate_weight";
    has_gate_ = parameters.has(gate);
    if (has_gate_) shared_gate_ = ReplicatedLinear(parameters, gate, a.hidden, 1);
  }
  const auto counts = static_cast<size_t>(a.experts) * sizeof(float);
  memory_ = kernels.allocate(2 * sizeof(double) + (1 + chosen_since_.size()) * counts);
  balance_loss_ = static_cast<double*>(memory_.get());
  z_loss_ = balance_loss_ + 1;
  tokens_ = reinterpret_cast<float*>(z_loss_ + 1);
  for (size_t i = 0; i < chosen_since_.size(); ++i) {
    chosen_since_[i] = tokens_ + static_cast<int64_t>(1 + i) * a.experts;
  }
}

kernels::RouterShape Moe::shape(const Pass& pass) const {
  const Architecture& a = architecture_;
  kernels::RouterShape shape;
  shape.tokens = pass.own_rows();
  shape.experts = a.experts;
  shape.chosen = a.experts_per_token;
  shape.groups = a.router_groups;
  shape.groups_chosen = a.router_groups_per_token;
  shape.score = a.router_score == RouterScore::sigmoid ? kernels::RouterScore::sigmoid
                                                       : kernels::RouterScore::softmax;
  shape.softmax_first = a.router_pre_softmax;
  shape.scale = a.router_scale;
  return shape;
}

void Moe::round(Pass& pass, float* numbers, int64_t count) const {
  if (options_.type == kernels::Type::f32) return;
  const ArenaScope scope(pass.scratch);
  const Array rounded = pass.scratch.take(count, options_.type);
  pass.kernels.run(kernels::Copy{.count = count, .x = ConstArray(numbers), .y = rounded});
  pass.kernels.run(kernels::Copy{.count = count, .x = rounded, .y = Array(numbers)});
}

void Moe::route(Pass& pass, ConstArray x, Saved& saved) const {
  const int64_t tokens = pass.own_rows(), experts = architecture_.experts;
  const int64_t chosen = architecture_.experts_per_token;
  saved.logits = pass.kept.take<float>(tokens * experts);
  saved.experts = pass.kept.take<int32_t>(tokens * chosen);
  saved.weights = pass.kept.take<float>(tokens * chosen);
  router_.forward(pass, x, Array(saved.logits));
  round(pass, saved.logits, tokens * experts);
  const ArenaScope scope(pass.scratch);
  int32_t* balanced = nullptr;
  if (options_.balance != RouterOptions::Balance::none && pass.trains) {
    saved.scores = pass.kept.take<float>(tokens * experts);
    balanced = pass.scratch.take<int32_t>(tokens * chosen);
  }
  pass.kernels.run(
      kernels::RouterForward{.shape = shape(pass),
                             .logits = saved.logits,
                             .expert_bias = static_cast<const float*>(expert_bias_.value.data),
                             .experts = saved.experts,
                             .weights = saved.weights,
                             .scores = saved.scores,
                             .balance_experts = balanced});
  round(pass, saved.weights, tokens * chosen);
  if (expert_bias_ && pass.trains && !pass.repeats) {
    pass.kernels.run(kernels::ExpertCounts{.tokens = tokens,
                                           .chosen = chosen,
                                           .experts = experts,
                                           .taken = saved.experts,
                                           .counts = tokens_,
                                           .accumulate = true});
  }
  if (balanced != nullptr) add_balance_loss(pass, balanced, saved);
  if (options_.z_coefficient && !pass.repeats) {
    pass.kernels.run(kernels::ZLoss{.tokens = tokens,
                                    .experts = experts,
                                    .logits = saved.logits,
                                    .factor = z_factor(pass) / static_cast<double>(options_.times),
                                    .loss = z_loss_});
  }
}

// The loss is the mean over all tokens of the micro-batch; this rank has a part of them.
double Moe::z_factor(const Pass& pass) const {
  return 1 / static_cast<double>(pass.own_rows() * pass.ranks.tensor_and_context.size());
}

Moe::Choices Moe::add_to_step(Pass& pass, const float* counts) const {
  const size_t which = pass.repeats ? 1 : 0;
  const Array since(chosen_since_[which]);
  pass.kernels.run(kernels::Add{
      .count = architecture_.experts, .a = since, .b = ConstArray(counts), .y = since});
  return {chosen_since_[which], ++batches_since_[which]};
}

// The loss is, by sequence or for all tokens at once, experts · sum over e of (share of the choices
// that take e) · (mean score of e), over all ranks with parts of the sequences; for the global
// batch, over all ranks and all micro-batches up to this one.
void Moe::add_balance_loss(Pass& pass, const int32_t* taken, Saved& saved) const {
  const int64_t experts = architecture_.experts, chosen = architecture_.experts_per_token;
  const int64_t sequences = balanced_sequences(pass);
  const bool is_global = options_.balance == RouterOptions::Balance::global_batch;
  Communicator& ranks = is_global ? pass.ranks.stage : pass.ranks.tensor_and_context;
  auto* const counts = pass.scratch.take<float>(sequences * experts);
  saved.expert_gradient = pass.kept.take<float>(sequences * experts);
  pass.kernels.run(kernels::ExpertCounts{.tokens = pass.own_rows(),
                                         .chosen = chosen,
                                         .experts = experts,
                                         .sequences = sequences,
                                         .taken = taken,
                                         .counts = counts});
  ranks.wait(ranks.all_reduce(Array(counts), sequences * experts));
  const Choices choices = is_global ? add_to_step(pass, counts) : Choices{counts, 1};
  const auto tokens = static_cast<double>(pass.own_rows() / sequences * ranks.size());
  const double factor = static_cast<double>(experts) /
                        (static_cast<double>(chosen) * tokens * tokens) /
                        static_cast<double>(sequences * choices.batches * options_.times);
  pass.kernels.run(kernels::BalanceLoss{
      .tokens = pass.own_rows(),
      .experts = experts,
      .sequences = sequences,
      .scores = saved.scores,
      .counts = choices.counts,
      .factor = factor,
      .gradient_factor = factor * options_.balance_coefficient * pass.auxiliary_scale,
      .loss = pass.repeats ? nullptr : balance_loss_,
      .gradient = saved.expert_gradient});
}

Moe::Saved Moe::forward(Pass& pass, ConstArray x, Array y) const {
  Saved saved;
  const int64_t tokens = pass.own_rows(), hidden = architecture_.hidden;
  route(pass, x, saved);
  saved.routed = experts_.forward(pass, saved.experts, saved.weights, x, y);
  if (!has_shared_) return saved;
  const ArenaScope scope(pass.scratch);
  Array shared = (has_gate_ ? pass.kept : pass.scratch).take(tokens * hidden, y.type);
  saved.shared_output = shared;
  if (has_gate_) saved.gate_logits = pass.kept.take<float>(tokens);
  saved.shared = forward_of(shared_, pass.recompute.shared_experts, pass, x, shared);
  if (has_gate_) {
    shared_gate_.forward(pass, x, Array(saved.gate_logits));
    const Array gated = pass.scratch.take(tokens * hidden, y.type);
    pass.kernels.run(kernels::GateRows{
        .rows = tokens, .width = hidden, .logit = saved.gate_logits, .x = shared, .y = gated});
    shared = gated;
  }
  pass.kernels.run(kernels::Add{.count = tokens * hidden, .a = y, .b = shared, .y = y});
  return saved;
}

void Moe::backward(Pass& pass, const Saved& saved, ConstArray x, ConstArray dy, Array dx) const {
  const ArenaScope scope(pass.scratch);
  const int64_t tokens = pass.own_rows(), hidden = architecture_.hidden;
  const int64_t experts = architecture_.experts;
  auto* const dweights = pass.scratch.take<float>(tokens * architecture_.experts_per_token);
  experts_.backward(pass, saved.routed, dy, dx, dweights);

  auto* const dlogits = pass.scratch.take<float>(tokens * experts);
  pass.kernels.run(
      kernels::RouterBackward{.shape = shape(pass),
                              .logits = saved.logits,
                              .experts = saved.experts,
                              .weights = saved.weights,
                              .dweights = dweights,
                              .scores = saved.scores,
                              .expert_gradient = saved.expert_gradient,
                              .sequences = balanced_sequences(pass),
                              .z_factor = z_factor(pass) * options_.z_coefficient.value_or(0) *
                                          static_cast<double>(pass.auxiliary_scale),
                              .dlogits = dlogits});
  // A linear layer from x to `n` fp32 numbers: its products need operands of one type.
  const auto linear_backward = [&](const ReplicatedLinear& linear, int64_t n, float* d) {
    Array typed(d);
    if (x.type != Type::f32) {
      typed = pass.scratch.take(tokens * n, x.type);
      pass.kernels.run(kernels::Copy{.count = tokens * n, .x = Array(d), .y = typed});
    }
    linear.backward(pass, {}, x, typed, dx, true);
  };
  linear_backward(router_, experts, dlogits);

  if (!has_shared_) return;
  ConstArray dshared = dy;
  if (has_gate_) {
    const Array dgated = pass.scratch.take(tokens * hidden, dx.type);
    auto* const dgate = pass.scratch.take<float>(tokens);
    pass.kernels.run(kernels::GateRowsBackward{.rows = tokens,
                                               .width = hidden,
                                               .logit = saved.gate_logits,
                                               .x = saved.shared_output,
                                               .dy = dy,
                                               .dx = dgated,
                                               .dlogit = dgate});
    linear_backward(shared_gate_, 1, dgate);
    dshared = dgated;
  }
  const Array more = pass.scratch.take(tokens * hidden, dx.type);
  backward_of(shared_, pass.recompute.shared_experts, pass, saved.shared, hidden, x, dshared, more);
  pass.kernels.run(kernels::Add{.count = tokens * hidden, .a = dx, .b = more, .y = dx});
}

void Moe::update_bias(kernels::Kernels& kernels, Communicator& ranks) const {
  if (!expert_bias_) return;
  ranks.wait(ranks.all_reduce(Array(tokens_), architecture_.experts));
  kernels.run(kernels::ExpertBiasStep{.experts = architecture_.experts,
                                      .tokens = tokens_,
                                      .rate = options_.bias_update_rate,
                                      .bias = static_cast<float*>(expert_bias_.value.data)});
}

void Moe::download_losses(kernels::Kernels& kernels, Losses& losses) const {
  kernels.download(balance_loss_, &losses.balance, sizeof losses.balance);
  kernels.download(z_loss_, &losses.z, sizeof losses.z);
}

void Moe::reset(kernels::Kernels& kernels) const {
  const auto counts = static_cast<int64_t>(1 + chosen_since_.size()) * architecture_.experts;
  kernels.run(kernels::Clear{.count = 4 + counts, .y = Array(tokens_ - 4)});
  batches_since_ = {};
}

}  // namespace ferry
