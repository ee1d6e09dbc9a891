#include "trainer/language/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "convert/arguments/arguments.h"
#include "trainer/arguments/namespace.h"
#include "trainer/log/log_lines.h"

namespace ferry {

namespace {

Architecture checked_architecture(const Value& args, const std::string& path) {
  ReadArguments read = read_arguments(args, path);
  for (std::string& reason : untrainable_reasons(read.architecture)) {
    read.problems.push_back(std::move(reason));
  }
  if (!read.problems.empty()) {
    fail(ErrorKind::unsupported, "{}: this model cannot be trained: {}", path,
         fmt::join(read.problems, "; "));
  }
  return std::move(read.architecture);
}

}  // namespace

std::vector<std::string> untrainable_reasons(const Architecture& a) {
  std::vector<std::string> reasons;
  const auto add = [&](bool has, const char* what) {
    if (has) reasons.push_back(fmt::format("{} is not supported", what));
  };
  add(a.linear_bias && a.shared_ffn > 0,
      "a bias in shared experts (add_bias_linear: --disable-bias-linear leaves it out, "
      "--add-qkv-bias keeps the biases of queries, keys and values)");
  const auto add_layers = [&](const char* what, const char* argument, const auto& holds) {
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      if (holds(layer)) layers.push_back(layer);
    }
    if (layers.empty()) return;
    reasons.push_back(fmt::format("{} ({}: layer {}{}) is not supported", what, argument,
                                  layers.front(), layers.size() > 1 ? " and others" : ""));
  };
  add_layers("a gated delta net", "linear_attention_freq",
             [&](int64_t layer) { return a.is_linear(layer); });
  add_layers("a Mamba mixer", "hybrid_layer_pattern",
             [&](int64_t layer) { return a.kind(layer) == LayerKind::mamba; });
  add(a.is_hybrid() && !a.any_mamba(),
      "a layer that is attention, an MLP or a mixture alone (hybrid_layer_pattern)");
  add(a.expert_width > 0, "a smaller width of experts' inputs (moe_latent_size)");
  add(a.output_gate, "a gate on the attention's output (attention_output_gate)");
  add(a.zero_centered_norms, "a norm stored less 1 (layernorm_zero_centered_gamma)");
  add(!a.input_norms || a.output_norms, "a norm of what attention and MLP give");
  add(a.attention_by_kind, "attention that differs between layers with and without a window");
  add(a.norms_all_heads, "a norm over all heads of queries or keys");
  add(a.scales_embedding, "a factor on embeddings");
  add(a.attention_scalar != 0, "a scale on attention's scores (softmax_scale)");
  add(a.windowed_rope_theta != 0, "a rotary base for layers with a window");
  add(a.activation == Activation::tanh_geglu, "gated GELU in its tanh form");
  add(a.sinks && a.mla, "a learned score for no key with latent attention (softmax_type)");
  add(a.index_heads > 0, "sparse attention (experimental_attention_variant)");
  return reasons;
}

RunModel::RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path)
    : RunModel{checked_architecture(args, path), std::move(tensors), read_run_arguments(args)} {}

RunModel::RunModel(Architecture described, std::vector<ModelTensor> tensors,
                   const RunArguments& run_arguments)
    : StateLayout{ModelLayout(std::move(tensors), run_arguments), {}},
      architecture(std::move(described)) {
  choice.modules = default_modules(layout.run());
  choice.separate_experts = layout.has_experts() && experts_are_separate(layout.run());
}

namespace {

kernels::Type parameter_type(const TrainArguments& arguments) {
  return kernel_type(parameter_dtype(arguments), "parameters");
}

Recompute recompute_of(const TrainArguments& arguments) {
  Recompute recompute;
  if (arguments.recompute_granularity == "full") {
    recompute.layers = arguments.recompute_method == "uniform" ? Recompute::Layers::in_blocks
                                                               : Recompute::Layers::first_ones;
    recompute.count = arguments.recompute_num_layers.value_or(1);
  } else if (arguments.recompute_granularity == "selective") {
    const auto& modules = arguments.recompute_modules;
    const auto has = [&](const char* name) { return std::ranges::count(modules, name) > 0; };
    recompute.norms = has("layernorm");
    recompute.latent_up = has("mla_up_proj");
    recompute.mlp = has("mlp");
    recompute.moe = has("moe");
    recompute.expert_activation = has("moe_act");
    recompute.shared_experts = has("shared_experts");
  }
  return recompute;
}

RouterOptions router_options(const TrainArguments& arguments) {
  RouterOptions options;
  options.bias_update_rate = arguments.moe_router_bias_update_rate;
  options.z_coefficient = arguments.moe_z_loss_coeff;
  if (arguments.moe_router_dtype.empty()) options.type = parameter_type(arguments);
  for (size_t i = 0; i < arguments.moe_router_load_balancing_type.size(); ++i) {
    const std::string& kind = arguments.moe_router_load_balancing_type[i];
    const double coefficient =
        i < arguments.moe_aux_loss_coeff.size() ? arguments.moe_aux_loss_coeff[i] : 0;
    if (coefficient == 0 || kind == "none") continue;
    options.balance = kind == "seq_aux_loss"      ? RouterOptions::Balance::sequence
                      : kind == "global_aux_loss" ? RouterOptions::Balance::global_batch
                                                  : RouterOptions::Balance::micro_batch;
    options.balance_coefficient = coefficient;
  }
  return options;
}

// A mask that is not created resets nothing.
bool resets_attention(const TrainArguments& arguments) {
  return arguments.reset_attention_mask && arguments.create_attention_mask_in_dataloader;
}

// The tokenizer as Megatron-LM describes it in cached sample orders: members in its order, numbers
// as text. Other kinds than these two are described by their class alone.
// Source: megatron/core/tokenizers/utils/build_tokenizer.py.
std::string tokenizer_description(const TrainArguments& arguments) {
  nlohmann::ordered_json json{
      {"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
      {"tokenizer_path", nullptr}};
  const auto put = [&](const char* name, int64_t value) { json[name] = std::to_string(value); };
  if (arguments.tokenizer_type == "NullTokenizer") {
    if (arguments.vocab_size) put("vocab_size", *arguments.vocab_size);
    if (arguments.null_tokenizer_eod_id) put("eod_id", *arguments.null_tokenizer_eod_id);
    put("pad_id", arguments.null_tokenizer_pad_id);
  } else {
    if (!arguments.tokenizer_model.empty()) json["tokenizer_path"] = arguments.tokenizer_model;
  }
  return json.dump();
}

// A padding token that also ends documents is trained on.
// Source: megatron/core/datasets/megatron_dataset.py.
void set_tokens(const TrainArguments& arguments, MaskOptions& masks) {
  const int64_t last = arguments.vocab_size.value_or(0) - 1;
  const int64_t made_up = arguments.null_tokenizer_eod_id.value_or(last);
  masks.end_of_document = static_cast<int32_t>(arguments.end_of_document.value_or(made_up));
  const bool is_null = arguments.tokenizer_type == "NullTokenizer";
  const auto padding = is_null ? arguments.null_tokenizer_pad_id : arguments.padding;
  const auto end = is_null ? made_up : arguments.end_of_document;
  if (!padding || (padding == end && !arguments.allow_ambiguous_pad_tokens)) return;
  masks.padding = static_cast<int32_t>(*padding);
}

}  // namespace

void check_run(const TrainArguments& a) {
  const bool has_groups = a.group_query_attention && !a.multi_latent_attention;
  if (has_groups && a.num_query_groups < a.tensor_model_parallel_size) {
    fail(ErrorKind::unsupported,
         "--num-query-groups {} with --tensor-model-parallel-size {}: each tensor rank needs its "
         "own query group; give at most {} tensor ranks, and more pipeline, context or data ranks",
         a.num_query_groups, a.tensor_model_parallel_size, a.num_query_groups);
  }
  check_loop(a);
}

DType parameter_dtype(const TrainArguments& arguments) {
  return arguments.bf16 ? DType::bf16 : arguments.fp16 ? DType::f16 : DType::f32;
}

LoadedValue namespace_of(const TrainArguments& arguments) {
  Draft draft;
  const Value args = write_namespace(arguments, {}, draft);
  return std::move(draft).finish(args);
}

ModelOptions model_options(const TrainArguments& arguments, const RunModel& model,
                           const GridPlace& place) {
  ModelOptions options;
  options.type = parameter_type(arguments);
  options.tensor_ranks = model.run().tensor;
  options.experts = {model.run().expert, place.expert, model.run().expert_tensor};
  options.router = router_options(arguments);
  options.predictions = arguments.mtp_num_layers.value_or(0);
  return options;
}

ModelStateOptions state_options(const TrainArguments& arguments, const RunModel& model) {
  ModelStateOptions options = optimizer_state_options(arguments);
  if (!arguments.accumulate_allreduce_grads_in_fp32) {
    options.gradient_type = parameter_type(arguments);
  }
  options.sequence_parallel = arguments.sequence_parallel;
  options.latent_attention = model.architecture.mla;
  return options;
}

PipelineOptions pipeline_options(const TrainArguments& arguments) {
  PipelineOptions options;
  options.type = parameter_type(arguments);
  options.sequences = arguments.micro_batch_size.value_or(1);
  options.length = arguments.seq_length.value_or(0);
  options.sequence_parallel = arguments.sequence_parallel;
  options.resets_attention = resets_attention(arguments);
  options.hidden_dropout = arguments.hidden_dropout;
  options.attention_dropout = arguments.attention_dropout;
  options.seed = arguments.seed;
  options.recompute = recompute_of(arguments);
  options.per_token_loss = arguments.calculate_per_token_loss;
  const auto predictions = static_cast<double>(arguments.mtp_num_layers.value_or(1));
  options.predictions = arguments.mtp_num_layers.value_or(0);
  options.prediction_scale = arguments.mtp_loss_scaling_factor / predictions;
  return options;
}

std::string bf16_experts_note(const TrainArguments& arguments, const Architecture& a,
                              bool has_grouped_float8) {
  constexpr const char* kNote = "--fp8-format: routed experts run in bf16: ";
  if (arguments.fp8.empty() || a.experts == 0) return {};
  const int64_t width = a.expert_ffn / arguments.expert_tensor_parallel_size.value_or(1);
  if (width % kernels::kFloat8Multiple != 0) {
    return fmt::format("{}an expert is {} wide on a rank, and FP8 products need multiples of {}",
                       kNote, width, kernels::kFloat8Multiple);
  }
  if (!has_grouped_float8) {
    return fmt::format(
        "{}their FP8 products need compute capability 9.0 (Hopper), and this GPU has another one",
        kNote);
  }
  return {};
}

Float8Options float8_options(const TrainArguments& arguments, const RunModel& model,
                             const kernels::Kernels& kernels) {
  Float8Options options;
  options.experts =
      bf16_experts_note(arguments, model.architecture, kernels.has_grouped_float8()).empty();
  options.gradients = arguments.fp8 == "e4m3" ? kernels::Float8::e4m3 : kernels::Float8::e5m2;
  options.is_delayed = arguments.fp8_recipe == "delayed";
  options.history_length = arguments.fp8_amax_history_len;
  options.takes_newest = arguments.fp8_amax_compute_algo == "most_recent";
  options.margin = arguments.fp8_margin;
  options.weight_gradients = arguments.fp8_wgrad;
  options.prediction_layers = model.architecture.mtp_layers;
  options.end_layer = model.architecture.layers;
  if (arguments.first_last_layers_bf16) {
    options.first_layer = arguments.num_layers_at_start_in_bf16;
    options.end_layer -= arguments.num_layers_at_end_in_bf16;
  }
  return options;
}

DataOptions data_options(const TrainArguments& arguments) {
  DataOptions options;
  options.data_path = arguments.data_path;
  options.split_data_path = {arguments.train_data_path, arguments.valid_data_path,
                             arguments.test_data_path};
  options.data_args_path = arguments.data_args_path;
  options.per_split_data_args_path = arguments.per_split_data_args_path;
  options.mock_data = arguments.mock_data;
  options.split = arguments.split;
  options.cache_path = arguments.data_cache_path;
  options.sequence_length = arguments.seq_length.value_or(0);
  options.seed = arguments.seed;
  const DataSizes sizes = data_sizes(arguments);
  options.samples = {sizes.train, sizes.validation, sizes.test};
  options.mid_level_dataset_surplus = arguments.mid_level_dataset_surplus;
  options.tokenizer = tokenizer_description(arguments);
  options.vocabulary_size = arguments.vocab_size.value_or(0);
  options.token_limit = arguments.padded_vocab_size.value_or(INT32_MAX);
  options.masks.eod_mask_loss = arguments.eod_mask_loss;
  options.masks.reset_position_ids = arguments.reset_position_ids;
  options.masks.reset_attention_mask = resets_attention(arguments);
  options.masks.goldfish_loss = arguments.goldfish_loss;
  options.masks.goldfish_k = arguments.goldfish_k;
  options.masks.goldfish_h = arguments.goldfish_h;
  set_tokens(arguments, options.masks);
  return options;
}

SamplerOptions sampler_options(const TrainArguments& arguments, SampleOrder order,
                               int64_t samples) {
  SamplerOptions options;
  options.order = order;
  options.samples = samples;
  options.micro_batch_size = arguments.micro_batch_size.value_or(1);
  options.data_ranks = arguments.data_parallel_size;
  options.data_sharding = arguments.data_sharding;
  return options;
}

}  // namespace ferry
