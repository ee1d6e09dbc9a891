// Small models of several kinds, and layouts for them.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

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

/// gpt-oss's kind: scores of no key, windows in every second layer, YaRN, biases everywhere,
/// clamped quick GEGLU.
inline SmallRun small_gpt_oss() {
  SmallRun small = small_experts();
  Architecture& a = small.architecture;
  a.linear_bias = a.qkv_bias = true;
  a.sinks = true;
  a.window = 5;
  a.windowed_layers = {true, false, true, false};
  a.rope_scaling = RopeScaling::yarn;
  a.rope_factor = 4;
  a.rope_original_positions = 8;
  a.rope_truncates = false;
  a.activation = Activation::quick_geglu;
  a.glu_clamp = 7;
  a.glu_offset = 1;
  return small;
}

/// Latent attention, experts after a first dense layer, and shared ones.
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

/// The same with layers that predict the tokens after the next one.
inline SmallRun with_predictions(SmallRun small, int64_t layers = 2) {
  small.architecture.mtp_layers = small.run.mtp_layers = layers;
  small.options.predictions = layers;
  small.options.prediction_scale = 0.5 / static_cast<double>(layers);
  return small;
}

/// One layer predicts all of them.
inline SmallRun with_repeated_prediction(SmallRun small, int64_t times = 2) {
  small = with_predictions(std::move(small), times);
  small.architecture.mtp_layers = 1;
  small.run.repeated_mtp = true;
  return small;
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
  if (has("BUCKETS")) {
    run.overlap_grad_reduce = true;
    run.bucket_elements = 1000;
  }
  if (has("EP2")) run.expert = 2;
  if (has("MBS1")) small.options.sequences = 1;
  if (has("MBS4")) small.options.sequences = 4;
  const int64_t data = has("DP2") ? 2 : 1;
  run.world_size = run.tensor * run.pipeline * run.context * data;
}

}  // namespace ferry::test
