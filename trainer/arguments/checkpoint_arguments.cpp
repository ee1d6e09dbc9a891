#include <fmt/format.h>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/namespace.h"

namespace ferry {
namespace {

enum class Take : uint8_t {
  when_absent,  // only if not given
  always,
};

struct Taken {
  std::string_view name;
  Take take = Take::always;
};

constexpr Taken kModel[] = {
    {"num_layers", Take::when_absent},
    {"hidden_size", Take::when_absent},
    {"ffn_hidden_size", Take::when_absent},
    {"seq_length", Take::when_absent},
    {"num_attention_heads", Take::when_absent},
    {"num_query_groups"},
    {"group_query_attention"},
    {"kv_channels", Take::when_absent},
    {"max_position_embeddings", Take::when_absent},
    {"position_embedding_type"},
    {"add_position_embedding"},
    {"use_rotary_position_embeddings"},
    {"rotary_base"},
    {"rotary_percent"},
    {"rotary_interleaved"},
    {"add_bias_linear"},
    {"add_qkv_bias"},
    {"squared_relu"},
    {"swiglu"},
    {"untie_embeddings_and_output_weights"},
    {"normalization"},
    {"apply_query_key_layer_scaling"},
    {"attention_dropout"},
    {"hidden_dropout"},
    {"mtp_num_layers"},
    {"mtp_use_repeated_layer"},
    {"spec"},
    {"num_experts"},
    {"moe_layer_freq"},
    {"moe_router_topk"},
    {"moe_token_dispatcher_type", Take::when_absent},
    {"moe_router_pre_softmax"},
    {"moe_grouped_gemm"},
    {"moe_single_grouped_weight"},
    {"moe_single_grouped_bias"},
    {"moe_shared_expert_intermediate_size"},
    {"moe_router_score_function"},
    {"moe_router_enable_expert_bias"},
    {"moe_router_topk_scaling_factor"},
    {"hybrid_layer_pattern", Take::when_absent},
    {"hybrid_override_pattern"},
    {"heterogeneous_layers_config_path"},
    {"heterogeneous_layers_config_encoded_json"},
    {"moe_latent_size"},
    {"xielu"},
    {"tiktoken_pattern"},
    {"padded_vocab_size", Take::when_absent},
    {"ckpt_format", Take::when_absent},
};
// These also shape the model, though Megatron-LM leaves them to the command line: without them a
// run would continue as another model.
constexpr Taken kModelToo[] = {
    {"qk_layernorm"},
    {"layernorm_epsilon"},
    {"no_rope_freq"},
    {"softmax_type"},
    {"quick_geglu"},
    {"activation_func_clamp_value"},
    {"glu_linear_offset"},
    {"bias_gelu_fusion"},
    {"window_size"},
    {"window_attn_skip_freq"},
    {"use_rope_scaling"},
    {"rope_scaling_factor"},
    {"rope_type"},
    {"rotary_seq_len_interpolation_factor"},
    {"multi_latent_attention"},
    {"q_lora_rank"},
    {"kv_lora_rank"},
    {"qk_head_dim"},
    {"qk_pos_emb_head_dim"},
    {"v_head_dim"},
    {"rotary_scaling_factor"},
    {"mscale"},
    {"mscale_all_dim"},
    {"yarn_original_max_position_embeddings"},
    {"yarn_beta_fast"},
    {"yarn_beta_slow"},
    {"yarn_correction_range_round_to_int"},
    {"moe_router_num_groups"},
    {"moe_router_group_topk"},
    {"moe_shared_expert_gate"},
    {"vocab_size", Take::when_absent},
};
constexpr Taken kTokenizer[] = {{"tokenizer_model"}, {"tokenizer_type"}};
constexpr Taken kRanks[] = {{"tensor_model_parallel_size"},
                            {"pipeline_model_parallel_size"},
                            {"virtual_pipeline_model_parallel_size"},
                            {"num_layers_per_virtual_pipeline_stage", Take::when_absent},
                            {"expert_model_parallel_size"}};

void take(TrainArguments& arguments, const Taken& taken, const Value& checkpoint,
          const std::string& path, std::vector<std::string>& notes) {
  const ArgumentRow* row = find_argument(taken.name);
  const Value value = checkpoint.get(taken.name);
  if (row == nullptr || value.is_none()) return;
  const bool given = value_of(arguments, *row).index() != 0;
  if (taken.take == Take::when_absent && given) return;
  try {
    set_value(arguments, *row, read_argument(row->kind, taken.name, value));
  } catch (const Error& error) {
    fail(error.kind(), "{}: the run that saved it used an argument that is not supported here: {}",
         path, error.what());
  }
  notes.push_back(fmt::format("Setting {} to {} from checkpoint", taken.name,
                              python_text(row->kind, value_of(arguments, *row))));
}

}  // namespace

void adopt_checkpoint_arguments(TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path, std::vector<std::string>& notes) {
  if (checkpoint.is_none()) {
    notes.push_back(
        fmt::format("{}: has no stored arguments; using those of the command line", path));
    return;
  }
  const auto take_all = [&](std::span<const Taken> all) {
    for (const Taken& taken : all) take(arguments, taken, checkpoint, path, notes);
  };
  take_all(kModel);
  take_all(kModelToo);
  if (const auto without = checkpoint.get("disable_bias_linear").boolean()) {
    arguments.add_bias_linear = !*without;
  }
  arguments.moe_ffn_hidden_size.reset();
  if (arguments.num_experts) take(arguments, {"moe_ffn_hidden_size"}, checkpoint, path, notes);
  if (arguments.use_tokenizer_model_from_checkpoint_args) take_all(kTokenizer);
  if (arguments.use_mp_args_from_checkpoint_args) take_all(kRanks);
}

void check_checkpoint_arguments(const TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path) {
  const auto compare = [&](std::string_view name) {
    const ArgumentRow& row = *find_argument(name);
    const Value saved = checkpoint.get(name);
    if (saved.is_none()) return;
    const std::string theirs = python_text(row.kind, read_argument(row.kind, name, saved));
    const std::string ours = python_text(row.kind, value_of(arguments, row));
    if (theirs == ours) return;
    fail(ErrorKind::mismatch,
         "{}: {} is {} in the checkpoint and {} now: give {} {}, or --use-checkpoint-args", path,
         name, theirs, ours, row.flag(), theirs);
  };
  for (const auto name :
       {"num_layers", "hidden_size", "num_attention_heads", "add_position_embedding"}) {
    compare(name);
  }
  if (!arguments.phase_transition_iterations.empty()) compare("global_batch_size");
  if (arguments.vocab_file.empty()) return;
  compare("max_position_embeddings");
  compare("make_vocab_size_divisible_by");
  compare("tokenizer_type");
  if (arguments.use_dist_ckpt) return;
  for (const auto name :
       {"padded_vocab_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"}) {
    compare(name);
  }
}

ConsumedSamples read_consumed_samples(const Value& checkpoint) {
  return {checkpoint.get("consumed_train_samples").integer(),
          checkpoint.get("skipped_train_samples").integer(),
          checkpoint.get("consumed_valid_samples").integer()};
}

}  // namespace ferry
