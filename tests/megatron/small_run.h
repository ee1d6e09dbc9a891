// Random small models with the state of their training, for property tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

using Random = std::mt19937_64;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
inline bool chance(Random& random, int percent) { return pick(random, 1, 100) <= percent; }
inline int64_t one_of(Random& random, const std::vector<int64_t>& numbers) {
  return numbers.at(pick(random, 0, static_cast<int64_t>(numbers.size()) - 1));
}

/// What a random model is made of.
struct SmallModel {
  int64_t layers, heads, groups, head_dim, hidden, ffn, experts, expert_ffn, tokens, divisor;
  bool gated, biases, qk_norms, tied, positions, moe, mixed, shared_expert, router_bias, fp32;
  bool transformer_engine, grouped, overlap;
  int64_t bucket_elements;  // 0: as Megatron-LM chooses

  explicit SmallModel(Random& random) {
    layers = one_of(random, {1, 2, 3, 4, 6, 8});
    heads = one_of(random, {1, 2, 4, 8});
    groups = heads / one_of(random, {1, heads > 1 ? 2 : 1});
    head_dim = pick(random, 1, 4);
    hidden = chance(random, 50) ? heads * head_dim : pick(random, 3, 12);
    ffn = 8 * pick(random, 1, 3);
    tokens = pick(random, 5, 40);
    divisor = one_of(random, {1, 2, 8});
    gated = chance(random, 60);
    biases = chance(random, 30);
    qk_norms = chance(random, 30);
    tied = chance(random, 40);
    positions = chance(random, 20);
    moe = chance(random, 40);
    mixed = moe && layers > 1 && chance(random, 40);  // the first layer dense: one tensor a layer
    experts = moe ? one_of(random, {2, 4, 8}) : 0;
    expert_ffn = 4 * pick(random, 1, 2);
    shared_expert = moe && chance(random, 40);
    router_bias = moe && chance(random, 40);
    fp32 = chance(random, 15);
    transformer_engine = chance(random, 60);
    grouped = moe && chance(random, 50);
    overlap = chance(random, 50);
    bucket_elements = one_of(random, {0, 500, 2000});
  }

  int64_t rows() const { return padded_vocabulary(tokens, divisor, 1); }
};

/// A run's state over a source in memory. At TP1, PP1: retarget() brings it elsewhere.
class SmallRun {
 public:
  explicit SmallRun(uint64_t seed) : random_(seed), model_(random_) {
    source_.file_system = files_;
    add_tensors();
    files_->put("source", std::move(bytes_));
    source_.files.push_back({"source", next_offset_});
  }

  const SmallModel& model() const { return model_; }
  const Catalog& source() const { return source_; }
  Random& random() { return random_; }

  RunState state() const {
    RunState state;
    state.source = SharedCatalog::borrow(source_);
    for (uint32_t i = 0; i < source_.entries.size(); ++i) {
      const Entry& entry = source_.entries[i];
      state.tensors.push_back(
          {entry.name, entry.dtype, entry.shape, {{i}, {copy_all(entry.shape)}, {}}, entry.role});
    }
    state.args = arguments();
    state.iteration = 7;
    state.param_groups = {groups()};
    if (!model_.fp32) state.grad_scaler = grad_scaler();
    return state;
  }

  /// A layout that the model may or may not fit, with all that is needed to come back to it.
  ParallelTarget random_layout() {
    ParallelTarget target;
    target.tensor = one_of(random_, {1, 1, 2, 4});
    target.pipeline = one_of(random_, {1, 1, 2, 3, 4});
    target.data = pick(random_, 1, 3);
    target.context = one_of(random_, {1, 1, 2});
    target.expert = model_.moe ? one_of(random_, {1, 2, 4}) : 1;
    target.expert_tensor = model_.moe ? one_of(random_, {1, 2}) : *target.tensor;
    const bool several = *target.pipeline > 1;
    target.virtual_pipeline = several && chance(random_, 40) ? 2 : 1;
    if (several && chance(random_, 15)) {
      target.stage_letters = random_stages(*target.pipeline * *target.virtual_pipeline);
    } else if (several && target.virtual_pipeline == 1) {
      const auto some = [&] { return pick(random_, 0, model_.layers / 2); };
      if (chance(random_, 30)) target.first_stage_layers = some();
      if (chance(random_, 30)) target.last_stage_layers = some();
    }
    return target;
  }

 private:
  // The layers in their order, cut anywhere: "Ett|t||tL".
  std::string random_stages(int64_t stages) {
    std::string text(static_cast<size_t>(model_.layers), 't');
    for (int64_t i = 1; i < stages; ++i) {
      text.insert(static_cast<size_t>(pick(random_, 0, static_cast<int64_t>(text.size()))), "|");
    }
    return "E" + text + "L";
  }

  void add_tensors() {
    const int64_t rows = model_.rows();
    add("embedding.word_embeddings.weight", {rows, model_.hidden});
    if (model_.positions) add("embedding.position_embeddings.weight", {6, model_.hidden});
    if (model_.mixed) {
      for (int64_t layer = 0; layer < model_.layers; ++layer) {
        add_layer("decoder.layers." + std::to_string(layer) + ".", {}, layer > 0);
      }
    } else {
      add_layer("decoder.layers.", {model_.layers}, model_.moe);
    }
    add("decoder.final_layernorm.weight", {model_.hidden});
    if (!model_.tied) add("output_layer.weight", {rows, model_.hidden});
    const size_t parameters = source_.entries.size();
    for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
      for (size_t i = 0; i < parameters; ++i) {
        const Entry model = source_.entries[i];
        const bool doubled = model_.fp32 && std::string_view(state) == "param";
        if (model.name.ends_with("expert_bias")) continue;
        add_entry(optimizer_entry_name(state, model.name), DType::f32, model.shape, Role::optimizer,
                  doubled ? &model : nullptr);
      }
    }
  }

  void add_layer(const std::string& prefix, const Dims& stack, bool moe) {
    const SmallModel& m = model_;
    const auto named = [&](const std::string& suffix, Dims shape) {
      shape.insert(shape.begin(), stack.begin(), stack.end());
      add(prefix + suffix, std::move(shape));
    };
    const auto linear = [&](const std::string& module, const Dims& shape) {
      named(module + ".weight", shape);
      if (m.biases) named(module + ".bias", {shape[0]});
    };
    const int64_t halves = m.gated ? 2 : 1;
    named("self_attention.linear_qkv.layer_norm_weight", {m.hidden});
    linear("self_attention.linear_qkv", {(m.heads + 2 * m.groups) * m.head_dim, m.hidden});
    linear("self_attention.linear_proj", {m.hidden, m.heads * m.head_dim});
    if (m.qk_norms) named("self_attention.q_layernorm.weight", {m.head_dim});
    if (m.qk_norms) named("self_attention.k_layernorm.weight", {m.head_dim});
    if (!moe) {
      named("mlp.linear_fc1.layer_norm_weight", {m.hidden});
      linear("mlp.linear_fc1", {halves * m.ffn, m.hidden});
      linear("mlp.linear_fc2", {m.hidden, m.ffn});
      return;
    }
    // As the modules that the arguments name call it.
    named(m.transformer_engine ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight",
          {m.hidden});
    named("mlp.router.weight", {m.experts, m.hidden});
    if (m.router_bias) named("mlp.router.expert_bias", {m.experts});
    named("mlp.experts.experts.linear_fc1.weight", {m.experts, halves * m.expert_ffn, m.hidden});
    named("mlp.experts.experts.linear_fc2.weight", {m.experts, m.hidden, m.expert_ffn});
    if (m.shared_expert) {
      named("mlp.shared_experts.linear_fc1.weight", {halves * m.ffn, m.hidden});
      named("mlp.shared_experts.linear_fc2.weight", {m.hidden, m.ffn});
    }
  }

  void add(const std::string& name, Dims shape) {
    const bool buffer = name.ends_with("expert_bias");
    add_entry(name, model_.fp32 || buffer ? DType::f32 : DType::bf16, shape, Role::model, nullptr);
  }

  void add_entry(const std::string& name, DType dtype, const Dims& shape, Role role,
                 const Entry* same) {
    const auto length = static_cast<uint64_t>(element_count(shape, name) * size_bytes(dtype));
    std::string content(length, '\0');
    for (char& byte : content) byte = static_cast<char>(random_());
    if (same) content = bytes_.substr(same->chunks[0].extent.offset, length);
    // Rows beyond the tokens are zero, as padding that is made anew is.
    const bool vocabulary =
        name.ends_with("word_embeddings.weight") || name.ends_with("output_layer.weight");
    if (vocabulary) {
      const uint64_t used = model_.tokens * model_.hidden * size_bytes(dtype);
      std::fill(content.begin() + static_cast<std::ptrdiff_t>(used), content.end(), '\0');
    }
    const Extent extent{0, next_offset_, length, Encoding::raw, false, 0};
    source_.entries.push_back({name, dtype, shape, {{{Box::whole(shape)}, {}, extent}}, role});
    bytes_ += content;
    next_offset_ += length;
  }

  LoadedValue arguments() const {
    const SmallModel& m = model_;
    Draft draft;
    const Value args = draft.instance("argparse.Namespace");
    const std::pair<const char*, int64_t> numbers[] = {
        {"num_layers", m.layers},
        {"hidden_size", m.hidden},
        {"num_attention_heads", m.heads},
        {"num_query_groups", m.groups},
        {"kv_channels", m.head_dim},
        {"ffn_hidden_size", m.ffn},
        {"vocab_size", m.tokens},
        {"make_vocab_size_divisible_by", m.divisor},
        {"padded_vocab_size", m.rows()},
        {"tensor_model_parallel_size", 1},
        {"pipeline_model_parallel_size", 1},
        {"world_size", 1},
    };
    for (const auto& [name, number] : numbers) draft.put(args, name, draft.integer(number));
    const std::pair<const char*, bool> flags[] = {
        {"swiglu", m.gated},
        {"group_query_attention", m.groups != m.heads},
        {"untie_embeddings_and_output_weights", !m.tied},
        {"use_distributed_optimizer", true},
        {"moe_grouped_gemm", m.grouped},
        {"bf16", !m.fp32},
        {"overlap_grad_reduce", m.overlap},
    };
    for (const auto& [name, flag] : flags) draft.put(args, name, draft.boolean(flag));
    draft.put(args, "transformer_impl",
              draft.string(m.transformer_engine ? "transformer_engine" : "local"));
    if (m.bucket_elements > 0) {
      draft.put(args, "ddp_bucket_size", draft.integer(m.bucket_elements));
    }
    draft.put(args, "a_tensor", draft.tensor(DType::f32, {1}, "args"));
    if (m.moe) {
      draft.put(args, "num_experts", draft.integer(m.experts));
      draft.put(args, "moe_ffn_hidden_size", draft.integer(m.expert_ffn));
      if (m.shared_expert) {
        draft.put(args, "moe_shared_expert_intermediate_size", draft.integer(m.ffn));
      }
    }
    return std::move(draft).finish(args);
  }

  // As Megatron-LM's dynamic scaler has it: a tensor among numbers.
  static LoadedValue grad_scaler() {
    Draft draft;
    const Value scaler = draft.dict();
    draft.put(scaler, "scale", draft.tensor(DType::f32, {1}, "loss"));
    draft.put(scaler, "growth_tracker", draft.integer(3));
    draft.put(scaler, "hysteresis_tracker", draft.integer(2));
    return std::move(draft).finish(scaler);
  }

  static LoadedValue groups() {
    Draft draft;
    const Value list = draft.list();
    for (const double factor : {1.0, 0.0}) {
      const Value group = draft.dict();
      draft.put(group, "wd_mult", draft.real(factor));
      draft.put(group, "is_expert_parallel", draft.boolean(false));
      draft.put(group, "step", draft.integer(7));
      draft.put(group, "lr", draft.tensor(DType::f32, {}, "rate"));
      draft.append(list, group);
    }
    return std::move(draft).finish(list);
  }

  Random random_;
  SmallModel model_;
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
  Catalog source_;
  std::string bytes_;
  uint64_t next_offset_ = 0;
};

}  // namespace ferry::test
