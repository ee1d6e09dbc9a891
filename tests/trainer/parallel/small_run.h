// Steps of a small model at any layout, without files: what they give is compared in full
// precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/together.h"
#include "convert/model/model_tensors.h"
#include "trainer/communicator/links.h"
#include "trainer/model/initial_weights.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parallel/pipeline.h"

namespace ferry::test {

struct SmallRun {
  Architecture architecture;
  RunArguments run;
  PipelineOptions options;
  RouterOptions router;
  OptimizerOptions optimizer;
  std::optional<double> input_and_output_rate;
  int64_t global_batch = 8;
  int64_t steps = 3;
  double loss_scale = 1;
  /// Changes the mask of a sample's losses.
  std::function<void(int64_t sample, std::vector<float>& mask)> mask;
};

struct StepFigures {
  double loss = 0, norm = 0;
  std::map<std::string, double> others;  // as logs name them
};

struct RunFigures {
  std::vector<StepFigures> steps;
  int64_t activation_bytes = 0;  // that the first rank plans
  double evaluation = 0;         // the loss of the first step's samples, before it
};

/// Llama's kind of layers; sizes that tensor, context and pipeline ranks can share.
inline SmallRun small_run() {
  SmallRun small;
  Architecture& a = small.architecture;
  a.layers = 4;
  a.hidden = 32;
  a.heads = 4;
  a.groups = 2;
  a.head_dim = 8;
  a.ffn = 48;
  a.positions = 16;
  a.padded_vocab = a.vocab = 64;
  a.init_std = 0.05;
  RunArguments& run = small.run;
  run.layers = a.layers;
  run.gated_mlp = true;
  run.transformer_engine = false;
  run.world_size = 1;
  small.options.sequences = 2;
  small.options.length = 16;
  small.options.seed = 5;
  return small;
}

/// GPT-2's kind: layer norms, biases, GELU, learned positions, tied embeddings.
inline SmallRun small_gpt2() {
  SmallRun small = small_run();
  Architecture& a = small.architecture;
  a.groups = a.heads;
  a.norm = Norm::layer;
  a.activation = Activation::gelu;
  a.linear_bias = a.qkv_bias = true;
  a.position_kind = Positions::learned;
  a.tied = true;
  small.run.gated_mlp = false;
  return small;
}

/// Experts in every layer.
inline SmallRun small_experts() {
  SmallRun small = small_run();
  Architecture& a = small.architecture;
  a.experts = small.run.experts = 4;
  a.experts_per_token = 2;
  a.expert_ffn = 16;
  a.moe_layers.assign(static_cast<size_t>(a.layers), true);
  small.router.balance = RouterOptions::Balance::micro_batch;
  small.router.balance_coefficient = 0.01;
  return small;
}

/// Latent attention, experts behind a first dense layer, and shared ones.
inline SmallRun small_deepseek() {
  SmallRun small = small_experts();
  Architecture& a = small.architecture;
  a.moe_layers[0] = false;
  a.mla = true;
  a.groups = a.heads;
  a.q_lora_rank = 12;
  a.kv_lora_rank = 8;
  a.qk_nope_dim = 8;
  a.qk_rope_dim = 4;
  a.v_dim = 8;
  a.qk_norm = true;
  a.shared_ffn = 16;
  a.router_score = RouterScore::sigmoid;
  a.expert_bias = true;
  a.router_scale = 2.5;
  small.router.balance = RouterOptions::Balance::sequence;
  return small;
}

/// The same with layers that predict the tokens behind the next one.
inline SmallRun with_predictions(SmallRun small, int64_t layers = 2) {
  small.architecture.mtp_layers = small.run.mtp_layers = layers;
  small.options.prediction_scale = 0.5 / static_cast<double>(layers);
  return small;
}

class SmallRank {
 public:
  SmallRank(const SmallRun& small, std::shared_ptr<Links> links)
      : small_(small),
        kernels_(kernels::cpu_kernels(1)),
        layout_(model_tensors(small.architecture, DType::f32), small.run),
        grid_(GridSizes(small.run), std::move(links), *kernels_),
        state_(layout_, choice(), grid_, *kernels_, state_options()),
        optimizer_(state_, grid_, *kernels_, small.optimizer),
        pipeline_(chunks(), small.architecture, grid_, *kernels_, small.options) {
    initialise(*kernels_, state_.model_regions(), small.architecture, 3);
    state_.copy_to_masters();
  }

  /// For each parameter, what the loss changes by along a random direction, by its gradient and by
  /// computing it beside the parameter's value. One rank alone.
  struct Slope {
    std::string name;
    double by_gradient = 0, by_difference = 0;
  };
  std::vector<Slope> slopes(double distance) {
    const auto loss_here = [&] {
      const StepLoss loss = compute_gradients();
      double sum = loss.sum / loss.tokens;
      for (const double one : loss.predictions) {
        sum += small_.options.prediction_scale * one / static_cast<double>(micro_batches());
      }
      return sum;
    };
    std::vector<Slope> slopes;
    std::vector<std::vector<float>> directions;
    loss_here();
    for (const StateRun& run : state_.runs()) {
      const auto* const gradient = static_cast<const float*>(run.gradient.data);
      std::vector<float>& direction = directions.emplace_back(static_cast<size_t>(run.elements));
      kernels_->run(kernels::FillNormal{
          .count = run.elements, .key = directions.size(), .y = kernels::Array(direction.data())});
      slopes.push_back({run.name, 0, 0});
      for (size_t i = 0; i < direction.size(); ++i) {
        slopes.back().by_gradient += static_cast<double>(gradient[i] * direction[i]);
      }
    }
    for (size_t r = 0; r < slopes.size(); ++r) {
      float* const values = state_.runs()[r].master;
      const std::vector<float> before(values, values + directions[r].size());
      const auto move = [&](double factor) {
        for (size_t i = 0; i < before.size(); ++i) {
          values[i] = before[i] + static_cast<float>(factor) * directions[r][i];
        }
        return loss_here();
      };
      slopes[r].by_difference = (move(distance) - move(-distance)) / (2 * distance);
      std::ranges::copy(before, values);
    }
    return slopes;
  }

  /// Calls act(name, parameter) for each, named as modules name it.
  template <typename Act>
  void for_parameters(const Act& act) {
    const auto parameters = layout_.parameters(RankCoordinates{}, default_modules(small_.run));
    for (const LocalParameter& local : parameters) {
      const std::string name = canonical_name(layout_, local);
      act(name, state_.parameters(0).get(name, local.elements));
    }
  }

  /// The gradients of the first step's samples.
  StepLoss compute_gradients() {
    state_.clear_gradients();
    pipeline_.begin_step(0);
    return pipeline_.train(micro_batches(), 1,
                           [&](int64_t number, Batch& batch) { batch = batch_of(0, number); });
  }

  const ModelState& state() const { return state_; }

  StepFigures take_step(int64_t step) {
    state_.clear_gradients();
    pipeline_.begin_step(step);
    const StepLoss loss =
        pipeline_.train(micro_batches(), small_.loss_scale,
                        [&](int64_t number, Batch& batch) { batch = batch_of(step, number); });
    state_.reduce_gradients();
    const double divisor = small_.options.per_token_loss ? loss.tokens : 1;
    const StepResult result =
        optimizer_.step({.number = step + 1,
                         .learning_rate = 1e-3,
                         .input_and_output_rate = small_.input_and_output_rate,
                         .weight_decay = 0.1,
                         .loss_scale = small_.loss_scale * divisor});
    StepFigures figures{loss.sum / loss.tokens, result.norm, {}};
    for (const auto& [name, value] : pipeline_.end_step(micro_batches())) {
      figures.others[name] = value;
    }
    return figures;
  }

  RunFigures train() {
    RunFigures figures;
    figures.activation_bytes = pipeline_.plan(micro_batches()).activation_bytes;
    const StepLoss loss = pipeline_.evaluate(
        micro_batches(), [&](int64_t number, Batch& batch) { batch = batch_of(0, number); });
    figures.evaluation = loss.sum / loss.tokens;
    for (int64_t step = 0; step < small_.steps; ++step) figures.steps.push_back(take_step(step));
    return figures;
  }

 private:
  ModelStateOptions state_options() const {
    ModelStateOptions options;
    options.distributed_optimizer = true;
    options.sequence_parallel = small_.options.sequence_parallel;
    options.latent_attention = small_.architecture.mla;
    options.kinds = small_.optimizer.state_kinds();
    return options;
  }
  BufferChoice choice() const {
    return {default_modules(small_.run), layout_.has_experts() && experts_are_separate(small_.run)};
  }

  std::vector<ModelChunk> chunks() {
    ModelOptions options;
    options.tensor_ranks = small_.run.tensor;
    options.experts = {small_.run.expert, grid_.place().expert, small_.run.expert_tensor};
    options.router = small_.router;
    std::vector<ModelChunk> chunks;
    for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
      chunks.emplace_back(state_.parameters(chunk), small_.architecture,
                          layout_.pipeline().at(grid_.place().stage, chunk), options, *kernels_);
      EXPECT_EQ(state_.parameters(chunk).first_unused(), "");
    }
    return chunks;
  }

  int64_t micro_batches() const {
    return small_.global_batch / (small_.options.sequences * grid_.sizes().data);
  }

  // Sample `number` of the run: a function of the number alone.
  void append_sample(int64_t number, Batch& batch) const {
    std::vector<float> mask;
    const int64_t length = batch.sequence_length;
    const auto token = [&](int64_t position) {
      const uint64_t word =
          kernels::mix_key(static_cast<uint64_t>(number), static_cast<uint64_t>(position));
      return static_cast<int32_t>(word % static_cast<uint64_t>(small_.architecture.vocab));
    };
    batch.document_starts.push_back(static_cast<int32_t>(batch.tokens.size()));
    for (int64_t i = 0; i < length; ++i) {
      batch.tokens.push_back(token(i));
      batch.labels.push_back(token(i + 1));
      batch.position_ids.push_back(static_cast<int32_t>(i));
      mask.push_back(1);
    }
    if (small_.mask) small_.mask(number, mask);
    batch.loss_mask.insert(batch.loss_mask.end(), mask.begin(), mask.end());
  }

  Batch batch_of(int64_t step, int64_t micro_batch) const {
    Batch batch;
    batch.rows = small_.options.sequences;
    batch.sequence_length = small_.options.length;
    const int64_t first =
        (micro_batch * grid_.sizes().data + grid_.place().data) * small_.options.sequences;
    for (int64_t row = 0; row < batch.rows; ++row) {
      append_sample(step * small_.global_batch + first + row, batch);
    }
    return batch;
  }

  const SmallRun& small_;
  std::unique_ptr<kernels::Kernels> kernels_;
  ModelLayout layout_;
  Grid grid_;
  ModelState state_;
  Optimizer optimizer_;
  Pipeline pipeline_;
};

/// What all ranks compute; each is a thread. `expected`: the beginning of the error that they end
/// with.
inline RunFigures train(const SmallRun& small, const std::string& expected = "") {
  const auto groups = thread_groups(static_cast<int>(small.run.world_size));
  const auto links = thread_links(groups);
  RunFigures figures;
  std::string problem;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const RunFigures own =
            or_abort(*groups[rank], [&] { return SmallRank(small, links[rank]).train(); });
        if (rank == 0) figures = own;
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        problem = error.what();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(problem.substr(0, expected.empty() ? problem.npos : expected.size()), expected);
  return figures;
}

/// A layout by its name, on top of a run.
inline void lay_out(SmallRun& small, std::string_view layout) {
  RunArguments& run = small.run;
  const auto has = [&](std::string_view word) { return layout.find(word) != layout.npos; };
  if (has("TP2")) run.tensor = run.expert_tensor = 2;
  if (has("ETP1")) run.expert_tensor = 1;
  if (has("SP")) small.options.sequence_parallel = true;
  if (has("PP2")) run.pipeline = 2;
  if (has("VPP2")) run.virtual_pipeline = 2;
  if (has("CP2")) run.context = 2;
  if (has("EP2")) run.expert = 2;
  if (has("MBS1")) small.options.sequences = 1;
  if (has("MBS4")) small.options.sequences = 4;
  const int64_t data = has("DP2") ? 2 : 1;
  run.world_size = run.tensor * run.pipeline * run.context * data;
}

inline void expect_alike(const RunFigures& ours, const RunFigures& expected, double tolerance) {
  ASSERT_EQ(ours.steps.size(), expected.steps.size());
  for (size_t i = 0; i < ours.steps.size(); ++i) {
    const StepFigures &a = ours.steps[i], &b = expected.steps[i];
    EXPECT_NEAR(a.loss / b.loss, 1, tolerance) << "step " << i;
    EXPECT_NEAR(a.norm / b.norm, 1, tolerance) << "step " << i;
    for (const auto& [name, value] : b.others) {
      ASSERT_TRUE(a.others.contains(name)) << name;
      EXPECT_NEAR(a.others.at(name), value, tolerance * std::abs(value)) << name << " step " << i;
    }
  }
}

}  // namespace ferry::test
