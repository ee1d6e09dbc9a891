// A mixture of experts as a layer's MLP: a router, routed experts, shared experts, and the losses
// and biases that balance the load.
//
// Source: megatron/core/transformer/moe/{router,moe_layer,moe_utils,shared_experts}.py; Fedus et
// al. 2021 (the load-balancing loss); Wang et al. 2024 (balance without it, by biases); Zoph et al.
// 2022 (the z-loss, which keeps logits small).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "trainer/model/mixture/experts.h"

namespace ferry {

/// Training options for experts that are not part of the architecture.
struct RouterOptions {
  /// The tokens over which the load is balanced.
  enum class Balance : uint8_t {
    none,
    micro_batch,
    sequence,
    global_batch,  // all tokens of all data-parallel ranks since the step started
  };
  Balance balance = Balance::none;
  double balance_coefficient = 0;
  std::optional<double> z_coefficient;  // of the z-loss
  double bias_update_rate = 1e-3;       // step size of expert biases
  int64_t times = 1;  // how often a layer is applied to a token: losses are divided by it
  /// The type that logits and expert weights are rounded to, as if the router computed in it.
  kernels::Type type = kernels::Type::f32;
};

class Moe {
 public:
  struct Saved {
    float* logits = nullptr;           // [own rows, experts]
    int32_t* experts = nullptr;        // [own rows, chosen]
    float* weights = nullptr;          // [own rows, chosen]
    float* scores = nullptr;           // for the load-balancing loss
    float* expert_gradient = nullptr;  // of the scores
    Experts::Saved routed;
    Mlp::Saved shared;
    kernels::Array shared_output;  // if there is a gate
    float* gate_logits = nullptr;
  };

  /// `prefix` is "decoder.layers.<layer>.mlp".
  Moe(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
      const RouterOptions& options, const ExpertSplit& split, int64_t tensor_ranks,
      kernels::Kernels& kernels);

  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

  /// Sums over forward() calls since the last reset(): losses divided by their coefficients (this
  /// rank's part), and tokens by expert.
  struct Losses {
    double balance = 0, z = 0;
  };
  /// Valid after kernels.wait().
  void download_losses(kernels::Kernels& kernels, Losses& losses) const;
  const RouterOptions& options() const { return options_; }
  /// Updates expert biases, if any, from the tokens of all `ranks` that share them.
  void update_bias(kernels::Kernels& kernels, Communicator& ranks) const;
  void reset(kernels::Kernels& kernels) const;

 private:
  kernels::RouterShape shape(const Pass& pass) const;
  void round(Pass& pass, float* numbers, int64_t count) const;
  void route(Pass& pass, kernels::ConstArray x, Saved& saved) const;
  void add_balance_loss(Pass& pass, const int32_t* taken, Saved& saved) const;
  struct Choices {
    const float* counts = nullptr;  // by expert
    int64_t batches = 1;            // number of micro-batches
  };
  /// Adds a micro-batch's choices to those of the step and returns the total.
  Choices add_to_step(Pass& pass, const float* counts) const;
  double z_factor(const Pass& pass) const;
  int64_t balanced_sequences(const Pass& pass) const {
    return options_.balance == RouterOptions::Balance::sequence ? pass.sequences : 1;
  }

  Architecture architecture_;
  RouterOptions options_;
  ReplicatedLinear router_, shared_gate_;
  Parameter expert_bias_;
  Experts experts_;
  Mlp shared_;
  bool has_shared_ = false, has_gate_ = false;
  std::shared_ptr<void> memory_;
  double *balance_loss_ = nullptr, *z_loss_ = nullptr;
  float* tokens_ = nullptr;  // by expert
  /// For Balance::global_batch: choices by expert and micro-batches since the step started, once
  /// for passes and once for recomputed passes, which process micro-batches in the same order.
  std::array<float*, 2> chosen_since_ = {};
  mutable std::array<int64_t, 2> batches_since_ = {};
};

}  // namespace ferry
