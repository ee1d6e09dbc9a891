// One rank that trains a small model, without files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convert/model/model_tensors.h"
#include "tests/trainer/parallel/small_models.h"
#include "trainer/communicator/links.h"
#include "trainer/model/parameters.h"

namespace ferry::test {

struct StepFigures {
  double loss = 0, norm = 0;
  std::map<std::string, double> others;  // as logs name them
};

struct RunFigures {
  std::vector<StepFigures> steps;
  int64_t activation_bytes = 0;  // that the first rank plans
  double evaluation = 0;         // the loss of the first step's samples, before it
};

class SmallRank {
 public:
  SmallRank(const SmallRun& small, std::shared_ptr<Links> links)
      : small_(small),
        kernels_(kernels::cpu_kernels(1)),
        layout_(model_tensors(small.architecture, DType::f32), small.run),
        grid_(GridSizes(small.run), links->rank(), host_communicators(links, *kernels_)),
        state_(layout_, choice(), grid_, *kernels_, state_options()),
        optimizer_(state_, grid_, *kernels_, small.optimizer),
        pipeline_(chunks(), small.architecture, grid_, *kernels_, small.options) {
    initialize(*kernels_, state_.model_regions(), small.architecture, 3);
    state_.copy_to_masters();
    pipeline_.set_watcher(&state_);
  }

  /// Adds random numbers to all parameters, so that biases are not zero.
  void disturb(double deviation) {
    uint64_t key = 0;
    for (const StateRun& run : state_.runs()) {
      std::vector<float> numbers(static_cast<size_t>(run.elements));
      kernels_->run(kernels::FillNormal{.count = run.elements,
                                        .key = --key,
                                        .deviation = deviation,
                                        .y = kernels::Array(numbers.data())});
      for (size_t i = 0; i < numbers.size(); ++i) run.master[i] += numbers[i];
    }
  }

  /// For each parameter, how the loss changes along a random direction: by its gradient, and by
  /// computing it close to the parameter's value. One rank alone.
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
    state_.begin_gradients();
    pipeline_.begin_step(0);
    pipeline_.train(micro_batches(), 1,
                    [&](int64_t number, Batch& batch) { batch = batch_of(0, number); });
    state_.reduce_gradients();
    return pipeline_.losses();
  }

  const ModelState& state() const { return state_; }

  StepFigures take_step(int64_t step) {
    state_.begin_gradients();
    pipeline_.begin_step(step);
    pipeline_.train(micro_batches(), small_.loss_scale,
                    [&](int64_t number, Batch& batch) { batch = batch_of(step, number); });
    state_.reduce_gradients();
    const double divisor = pipeline_.gradient_divisor();
    optimizer_.step({.number = step + 1,
                     .learning_rate = 1e-3,
                     .input_and_output_rate = small_.input_and_output_rate,
                     .weight_decay = 0.1,
                     .loss_scale = small_.loss_scale * divisor});
    const StepLoss loss = pipeline_.losses();
    StepFigures figures{loss.sum / loss.tokens, optimizer_.result().norm, {}};
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
    options.predictions = small_.options.predictions;
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

}  // namespace ferry::test
