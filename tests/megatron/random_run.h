// Made-up runs of small models, whole: arguments, tensors with their optimizer's state, parameter
// groups. Equal numbers give equal runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/run_state.h"
#include "tests/megatron/writer_support.h"

namespace ferry::test {

/// A parallel layout, and how the optimizer was run on it.
using Arguments = std::vector<std::pair<std::string, int64_t>>;

class RandomRun {
 public:
  explicit RandomRun(uint64_t number) : random_(static_cast<uint32_t>(number)) {
    choose_model();
    add_tensors();
    fill();
  }

  const Catalog& source() { return tensors_.catalog(); }
  bool has_experts() const { return experts_ > 0; }

  /// Everything, with the arguments of another random layout each time.
  RunState state(const Catalog& catalog, bool distributed) {
    RunState state = state_of_entries(catalog);
    std::erase_if(state.tensors, [&](const StateTensor& tensor) {
      return tensor.role == Role::optimizer && dtype_ == DType::f32 && !distributed &&
             tensor.name.starts_with("optimizer.state.param.");
    });
    state.args = arguments(distributed);
    state.iteration = 7;
    const RunArguments run = read_run_arguments(state.args.value);
    const bool separate = run.expert > 1 || (experts_ > 0 && run.expert_tensor != run.tensor);
    state.param_groups.push_back(groups(false));
    if (separate) state.param_groups.push_back(groups(true));
    return state;
  }

  DType dtype() const { return dtype_; }

 private:
  int64_t one_of(std::initializer_list<int64_t> numbers) {
    return *(numbers.begin() + random_() % numbers.size());
  }
  bool coin() { return random_() % 2; }

  void choose_model() {
    dtype_ = coin() ? DType::bf16 : DType::f32;
    fused_ = coin();
    gated_ = coin();
    tied_ = coin();
    biases_ = coin();
    latent_ = random_() % 4 == 0;
    experts_ = coin() ? one_of({4, 8}) : 0;
    if (experts_ > 0) gated_ = true;  // else both projections of an expert are of one size
    grouped_ = experts_ > 0 && coin();
    first_dense_ = experts_ > 0 && coin();
    shared_ = experts_ > 0 && coin();
    layers_ = one_of({4, 8});
  }

  LoadedValue arguments(bool distributed) {
    Draft draft;
    const Value args = draft.instance("argparse.Namespace");
    const auto flag = [&](const char* name, bool value) {
      draft.put(args, name, draft.boolean(value));
    };
    const auto number = [&](const char* name, int64_t value) {
      draft.put(args, name, draft.integer(value));
    };
    const int64_t tensor = one_of({1, 2, 4}), pipeline = one_of({1, 2, 4});
    const int64_t expert = experts_ > 0 ? one_of({1, 2, 4}) : 1;
    const int64_t expert_tensor = experts_ > 0 && random_() % 3 == 0 ? one_of({1, 2}) : tensor;
    const int64_t ranks = std::max(tensor, expert * expert_tensor) * one_of({1, 2, 3});
    number("num_layers", layers_);
    number("num_attention_heads", 8);
    number("tensor_model_parallel_size", tensor);
    number("pipeline_model_parallel_size", pipeline);
    number("expert_model_parallel_size", expert);
    number("expert_tensor_parallel_size", expert_tensor);
    number("world_size", ranks * pipeline);
    if (pipeline > 1 && layers_ % (2 * pipeline) == 0 && coin()) {
      number("virtual_pipeline_model_parallel_size", 2);
      flag("overlap_param_gather_with_optimizer_step", distributed && coin());
    } else if (pipeline == 2 && coin()) {
      number("decoder_first_pipeline_num_layers", 1);
    }
    flag("overlap_grad_reduce", coin());
    if (coin())
      number("ddp_bucket_size", one_of({500, 2000, 9000}));
    else if (coin())
      number("ddp_num_buckets", 3);
    flag("swiglu", gated_);
    flag("bf16", dtype_ == DType::bf16);
    flag("untie_embeddings_and_output_weights", !tied_);
    flag("use_distributed_optimizer", distributed);
    flag("accumulate_allreduce_grads_in_fp32", coin());
    draft.put(args, "transformer_impl", draft.string(fused_ ? "transformer_engine" : "local"));
    if (experts_ > 0) {
      number("num_experts", experts_);
      flag("moe_grouped_gemm", grouped_);
      if (first_dense_) {
        const Value frequency = draft.list();
        for (int64_t layer = 0; layer < layers_; ++layer) {
          draft.append(frequency, draft.integer(layer > 0));
        }
        draft.put(args, "moe_layer_freq", frequency);
      }
    }
    if (latent_) {
      number("q_lora_rank", 16);
      number("kv_lora_rank", 8);
      number("qk_pos_emb_head_dim", 8);
    }
    return std::move(draft).finish(args);
  }

  LoadedValue groups(bool experts) const {
    Draft draft;
    const Value list = draft.list();
    for (const double decay : {1.0, 0.0}) {
      if (experts && decay == 0 && !biases_) continue;
      const Value group = draft.dict();
      draft.put(group, "is_expert_parallel", draft.boolean(experts));
      draft.put(group, "wd_mult", draft.real(decay));
      draft.put(group, "step", draft.integer(7));
      draft.append(list, group);
    }
    return std::move(draft).finish(list);
  }

  void add(std::string name, Dims shape) { shapes_.emplace_back(std::move(name), shape); }

  void add_layers(const std::string& suffix, const Dims& shape, bool dense, bool routed) {
    if (!first_dense_) {
      Dims stacked = shape;
      stacked.insert(stacked.begin(), layers_);
      add("decoder.layers." + suffix, stacked);
      return;
    }
    for (int64_t layer = 0; layer < layers_; ++layer) {
      if (layer == 0 ? routed : dense) continue;
      add(fmt::format("decoder.layers.{}.{}", layer, suffix), shape);
    }
  }
  void add_in_all(const std::string& suffix, const Dims& shape) {
    add_layers(suffix, shape, false, false);
  }

  void add_linear(const std::string& module, const Dims& shape, bool dense, bool routed) {
    add_layers(module + ".weight", shape, dense, routed);
    if (biases_) add_layers(module + ".bias", {shape[0]}, dense, routed);
  }

  void add_attention() {
    if (latent_) {
      add_in_all("input_layernorm.weight", {kHidden});
      add_in_all("self_attention.linear_proj.weight", {kHidden, 64});
      add_in_all("self_attention.linear_q_down_proj.weight", {16, kHidden});
      add_in_all("self_attention.linear_q_up_proj.layer_norm_weight", {16});
      add_in_all("self_attention.linear_q_up_proj.weight", {80, 16});
      add_in_all("self_attention.linear_kv_down_proj.weight", {16, kHidden});
      add_in_all("self_attention.linear_kv_up_proj.layer_norm_weight", {8});
      add_in_all("self_attention.linear_kv_up_proj.weight", {96, 8});
      return;
    }
    add_in_all("self_attention.linear_qkv.layer_norm_weight", {kHidden});
    if (biases_) add_in_all("self_attention.linear_qkv.layer_norm_bias", {kHidden});
    add_linear("self_attention.linear_proj", {kHidden, 32}, false, false);
    add_linear("self_attention.linear_qkv", {48, kHidden}, false, false);
  }

  void add_tensors() {
    add("embedding.word_embeddings.weight", {40, kHidden});
    add_attention();
    const int64_t rows = gated_ ? 2 : 1;
    if (experts_ == 0 || first_dense_) {
      add_layers(
          fused_ || !latent_ ? "mlp.linear_fc1.layer_norm_weight" : "pre_mlp_layernorm.weight",
          {kHidden}, true, false);
      add_linear("mlp.linear_fc1", {rows * 32, kHidden}, true, false);
      add_linear("mlp.linear_fc2", {kHidden, 32}, true, false);
    }
    if (experts_ > 0) {
      add_layers(
          fused_ || latent_ ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight",
          {kHidden}, false, true);
      add_layers("mlp.router.weight", {experts_, kHidden}, false, true);
      add_layers("mlp.router.expert_bias", {experts_}, false, true);
      for (const auto& [name, shape] : {std::pair{"linear_fc1", Dims{experts_, 48, kHidden}},
                                        std::pair{"linear_fc2", Dims{experts_, kHidden, 24}}}) {
        const std::string module = std::string("mlp.experts.experts.") + name;
        add_layers(module + ".weight", shape, false, true);
        if (biases_) add_layers(module + ".bias", {experts_, shape[1]}, false, true);
      }
      if (shared_) {
        add_layers("mlp.shared_experts.linear_fc1.weight", {32, kHidden}, false, true);
        add_layers("mlp.shared_experts.linear_fc2.weight", {kHidden, 16}, false, true);
      }
    }
    add("decoder.final_layernorm.weight", {kHidden});
    if (!tied_) add("output_layer.weight", {40, kHidden});
  }

  std::string noise(uint64_t bytes) {
    std::string text(bytes, '\0');
    for (uint64_t at = 0; at + 2 <= bytes; at += 2) {
      const auto value = static_cast<uint16_t>(random_());
      std::memcpy(text.data() + at, &value, 2);
    }
    return text;
  }

  void fill() {
    for (const auto& [name, shape] : shapes_) {
      const auto elements = static_cast<uint64_t>(element_count(shape, name));
      const bool buffer = name.ends_with("expert_bias");
      const DType dtype = buffer ? DType::f32 : dtype_;
      tensors_.add(name, dtype, shape, Role::model,
                   noise(elements * static_cast<uint64_t>(size_bytes(dtype))));
    }
    for (const auto& [name, shape] : shapes_) {
      const auto elements = static_cast<uint64_t>(element_count(shape, name));
      if (name.ends_with("expert_bias")) continue;
      for (const char* kind : {"param", "exp_avg", "exp_avg_sq"}) {
        tensors_.add(fmt::format("optimizer.state.{}.{}", kind, name), DType::f32, shape,
                     Role::optimizer, noise(elements * 4));
      }
    }
  }

  static constexpr int64_t kHidden = 16;

  std::mt19937 random_;
  DType dtype_ = DType::bf16;
  bool fused_ = false, gated_ = false, tied_ = false, biases_ = false, latent_ = false,
       grouped_ = false, first_dense_ = false, shared_ = false;
  int64_t layers_ = 4, experts_ = 0;
  std::vector<std::pair<std::string, Dims>> shapes_;
  MemoryTensors tensors_;
};

}  // namespace ferry::test
