#include "ckpt/megatron/model/run_arguments.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/layer_spec.h"

namespace ferry {
namespace {

// No run is larger; bounds what hostile arguments can make us loop over.
constexpr int64_t kMostLayers = int64_t{1} << 16;
constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr int64_t kMostVocabulary = int64_t{1} << 31;

std::optional<int64_t> optional_size(const Value& args, std::string_view name, int64_t least,
                                     int64_t most) {
  const Value value = args.get(name);
  if (value.is_none()) return std::nullopt;
  const auto number = value.integer();
  if (!number || *number < least || *number > most) {
    fail(ErrorKind::unsupported, "argument {} of the run is not a whole number from {} to {}", name,
         least, most);
  }
  return number;
}

int64_t size_or(const Value& args, std::string_view name, int64_t otherwise,
                int64_t most = RunArguments::kMostRanks) {
  return optional_size(args, name, 1, most).value_or(otherwise);
}

bool flag(const Value& args, std::string_view name) {
  return args.get(name).boolean().value_or(false);
}

char layer_letter(const Value& layer) {
  // A member of the enum LayerType, or its name.
  if (const auto number = layer.integer()) {
    switch (*number) {
      case 1:
        return 'E';
      case 2:
        return 'L';
      case 4:
        return 't';  // 3 is an encoder layer
      case 5:
        return 'm';
      default:
        return '?';
    }
  }
  const auto word = layer.string();
  if (!word) return '?';
  if (*word == "embedding") return 'E';
  if (*word == "loss") return 'L';
  if (*word == "decoder") return 't';
  if (*word == "mtp") return 'm';
  return '?';
}

StageLetters read_stage_letters(Value layout) {
  if (layout.kind() == ValueKind::object && layout.has("input_data")) {
    layout = layout.get("input_data");
  }
  if (const auto text = layout.string()) return parse_stage_letters(*text);
  StageLetters stages;
  for (size_t i = 0; i < layout.size(); ++i) {
    std::string letters;
    for (size_t j = 0; j < layout[i].size(); ++j) letters += layer_letter(layout[i][j]);
    if (letters.find('?') != std::string::npos) {
      fail(ErrorKind::unsupported,
           "pipeline_model_parallel_layout of the run names a layer type that is not embedding, "
           "decoder, mtp or loss");
    }
    stages.push_back(std::move(letters));
  }
  return stages;
}

void refuse_other_placements(const Value& args) {
  for (const char* name :
       {"heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json"}) {
    const Value value = args.get(name);
    if (value.is_none() || (value.string() && value.string()->empty())) continue;
    fail(ErrorKind::unsupported,
         "the run was made with {}, whose layers are not placed by the "
         "rules of plain GPT models",
         name);
  }
  // The parts that a weight is cut into over tensor ranks and beyond them.
  for (const auto& [shards, ranks] :
       {std::pair{"tensor_parallel_num_weight_shards", "tensor_model_parallel_size"},
        std::pair{"expert_tensor_parallel_num_weight_shards", "expert_tensor_parallel_size"}}) {
    if (args.get(shards).integer().value_or(1) > args.get(ranks).integer().value_or(1)) {
      fail(ErrorKind::unsupported, "the run cut its weights into more parts than tensor ranks ({})",
           shards);
    }
  }
}

// Which layers have a window: none where the run has none, all where nothing says which.
std::vector<bool> windows_of(const Value& args, int64_t layers) {
  const Value size = args.get("window_size");
  if (size.is_none()) return std::vector<bool>(static_cast<size_t>(layers), false);
  std::vector<bool> windowed = windowed_layers(args, layers);
  windowed.resize(static_cast<size_t>(layers), windowed.empty());
  return windowed;
}

bool has_mamba_layers(const Value& args) {
  const auto pattern = hybrid_pattern(args);
  return pattern && (std::ranges::count(pattern->decoder, LayerKind::mamba) > 0 ||
                     std::ranges::count(pattern->mtp, LayerKind::mamba) > 0);
}

// Sizes of gated delta nets and Mamba mixers, and which layers have indexers.
Architecture read_mixers(const Value& args) {
  constexpr std::pair<const char*, int64_t Architecture::*> kSizes[] = {
      {"linear_num_key_heads", &Architecture::linear_key_heads},
      {"linear_num_value_heads", &Architecture::linear_value_heads},
      {"linear_key_head_dim", &Architecture::linear_key_dim},
      {"linear_value_head_dim", &Architecture::linear_value_dim}};
  constexpr int64_t kMostOfMixer = int64_t{1} << 20;
  Architecture sizes;
  if (has_mamba_layers(args)) {
    sizes.mamba_head_dim = size_or(args, "mamba_head_dim", 0, kMostOfMixer);
    sizes.mamba_groups = size_or(args, "mamba_num_groups", 0, kMostOfMixer);
    sizes.mamba_state = size_or(args, "mamba_state_dim", 0, kMostOfMixer);
    sizes.mamba_heads = size_or(args, "mamba_num_heads", 0, kMostOfMixer);
    if (sizes.mamba_heads == 0 && sizes.mamba_head_dim > 0) {  // it expands the hidden size by 2
      sizes.mamba_heads = 2 * size_or(args, "hidden_size", 0, kMostRows) / sizes.mamba_head_dim;
    }
    return sizes;
  }
  const std::string_view variant = args.get("experimental_attention_variant").string().value_or("");
  if (variant == "dsa") {
    sizes.index_heads = size_or(args, "dsa_indexer_n_heads", 0, kMostOfMixer);
    sizes.index_every = size_or(args, "dsa_indexer_topk_freq", 1, kMostOfMixer);
    sizes.index_first =
        std::max<int64_t>(args.get("dsa_indexer_skip_topk_offset").integer().value_or(1), 1);
  }
  if (variant != "gated_delta_net") return sizes;
  for (const auto& [name, member] : kSizes) sizes.*member = size_or(args, name, 0, kMostOfMixer);
  return sizes;
}

// Gradients are reduced in fp32 unless 16 bits were asked for, or are the parameters' own. Absent
// without the arguments of training.
bool reduces_in_fp32(const Value& args) {
  const Value said = args.get("accumulate_allreduce_grads_in_fp32");
  if (said.boolean()) return *said.boolean();
  return !flag(args, "fp16") && !flag(args, "grad_reduce_in_bf16");
}

bool is_gated(const Value& args) {
  return flag(args, "swiglu") || flag(args, "quick_geglu") || flag(args, "geglu") ||
         flag(args, "gated_linear_unit");
}

// Parameters of Mamba mixers are registered in another order by releases that do not know this
// argument, and by some that do not know it yet.
constexpr const char* kKnownMambaOrder = "ckpt_drop_redundant_extra_state";

std::string other_modules(const Value& args) {
  for (const char* name :
       {"mla_down_proj_fusion", "moe_single_grouped_weight", "moe_single_grouped_bias"}) {
    if (flag(args, name)) return name;
  }
  return has_mamba_layers(args) && !args.has(kKnownMambaOrder) ? "hybrid_layer_pattern" : "";
}

// The stages that a hybrid model's pattern names, in the words of other models.
StageLetters letters_of(const HybridPattern& pattern) {
  StageLetters stages;
  for (const int64_t layers : pattern.stage_layers) stages.emplace_back(layers, 't');
  if (stages.empty()) return stages;
  stages.front().insert(0, "E");
  stages.back().append(static_cast<size_t>(pattern.mtp_layers), 'm').append("L");
  return stages;
}

void read_hybrid(const Value& args, RunArguments& run) {
  const auto pattern = hybrid_pattern(args);
  if (!pattern) {
    if (!flag(args, "is_hybrid_model")) return;
    fail(ErrorKind::unsupported,
         "the run is a hybrid model, but no argument of it (hybrid_layer_pattern) says which kind "
         "each layer has");
  }
  run.hybrid = true;
  run.layers = static_cast<int64_t>(pattern->decoder.size());
  run.mtp_layers = pattern->mtp_layers;
  run.stage_letters = letters_of(*pattern);
}

}  // namespace

int64_t RunArguments::dense_data_parallel() const {
  return world_size / tensor / pipeline / optimizer_instances;
}

int64_t RunArguments::expert_data_parallel() const {
  return world_size / expert_tensor / expert / pipeline / optimizer_instances;
}

int64_t RunArguments::stage_stride() const {
  const int64_t model = std::max(tensor * context, expert_tensor * expert);
  return stages_before_data ? model : std::max(world_size / pipeline, model);
}

std::optional<int64_t> RunArguments::bucket_limit(int64_t stage, int64_t chunk,
                                                  int64_t parameters) const {
  if (!overlap_grad_reduce || overlap_param_gather_with_step || stage > 0 || chunk > 0) {
    return std::nullopt;
  }
  if (bucket_elements) return bucket_elements;
  if (bucket_count) return parameters / *bucket_count;
  constexpr int64_t kLeast = 40'000'000, kOfEachRank = 1'000'000;
  return std::max(kLeast, kOfEachRank * dense_data_parallel() * optimizer_instances);
}

// Source: Megatron-LM megatron/core/transformer/moe/{experts,shared_experts}.py, extensions/
// transformer_engine.py (TEFusedMLPWithGroupedLinear, whose blocks are fixed).
GluBlocks read_glu_blocks(const Value& args) {
  constexpr int64_t kBlockOfDense = 32;
  GluBlocks blocks;
  if (!is_gated(args)) return blocks;
  const auto rows = [&](std::string_view name) {
    return optional_size(args, name, 1, kMostRows).value_or(0);
  };
  const auto is_off = [&](std::string_view name) { return args.get(name).boolean() == false; };
  if (!is_off("moe_grouped_gemm")) blocks.experts = rows("moe_mlp_glu_interleave_size");
  if (!is_off("use_grouped_gemm_for_shared_expert")) {
    blocks.shared = rows("moe_shared_expert_glu_interleave_size");
  }
  if (flag(args, "use_grouped_gemm_for_dense_mlp") &&
      flag(args, "use_transformer_engine_op_fuser")) {
    blocks.dense = kBlockOfDense;
  }
  return blocks;
}

MatrixOptimizer matrix_optimizer(const Value& args) {
  constexpr std::string_view kLayerWise = "dist_";
  constexpr std::array<std::string_view, 12> kNames = {
      "muon", "adaptive_muon", "laprop",        "lion", "mop",   "muon_hyperball",
      "spel", "polargrad",     "sinkhorn_muon", "soap", "rekls", "scion"};
  MatrixOptimizer found;
  found.name = args.get("optimizer").string().value_or("");
  found.any =
      std::ranges::find(kNames, found.name) != kNames.end() || found.name.starts_with(kLayerWise);
  found.layer_wise =
      flag(args, "use_layer_wise_distributed_optimizer") || found.name.starts_with(kLayerWise);
  // Releases that could not do otherwise have no such argument.
  found.split = found.layer_wise && flag(args, "use_layer_wise_param_layout");
  found.any |= found.layer_wise;
  return found;
}

int64_t vocabulary_of_arguments(const Value& args) {
  const int64_t size = args.get("vocab_size").integer().value_or(0);
  if (size <= 0 || size > kMostVocabulary) return 0;
  // The stand-in tokenizer had one token more, its end of document, before it took that id as an
  // argument.
  const bool null_tokenizer = args.get("tokenizer_type").string() == "NullTokenizer";
  return null_tokenizer && !args.has("null_tokenizer_eod_id") ? size + 1 : size;
}

bool layers_are_stacked(const Value& args) {
  for (const char* name : {"moe_layer_freq", "linear_attention_freq"}) {
    const Value frequency = args.get(name);
    if (frequency.kind() == ValueKind::list || frequency.integer().value_or(1) > 1) return false;
  }
  return !flag(args, "hetereogenous_dist_checkpoint") && !flag(args, "is_hybrid_model") &&
         !hybrid_pattern(args);
}

RunArguments read_run_arguments(const Value& args) {
  refuse_other_placements(args);
  RunArguments run;
  run.layers = optional_size(args, "num_layers", 0, kMostLayers).value_or(0);
  run.mtp_layers = optional_size(args, "mtp_num_layers", 0, kMostLayers).value_or(0);
  run.repeated_mtp = flag(args, "mtp_use_repeated_layer");
  run.experts = optional_size(args, "num_experts", 0, RunArguments::kMostRanks).value_or(0);

  run.tensor = size_or(args, "tensor_model_parallel_size", 1);
  run.pipeline = size_or(args, "pipeline_model_parallel_size", 1, kMostLayers);
  run.virtual_pipeline = size_or(args, "virtual_pipeline_model_parallel_size", 1, kMostLayers);
  run.context = size_or(args, "context_parallel_size", 1);
  run.expert = size_or(args, "expert_model_parallel_size", 1);
  run.expert_tensor = size_or(args, "expert_tensor_parallel_size", run.tensor);
  run.world_size = optional_size(args, "world_size", 0, RunArguments::kMostRanks).value_or(0);
  run.optimizer_instances = size_or(args, "num_distributed_optimizer_instances", 1);

  run.stages_before_data = flag(args, "use_tp_pp_dp_mapping");

  run.first_stage_layers = optional_size(args, "decoder_first_pipeline_num_layers", 0, kMostLayers);
  run.last_stage_layers = optional_size(args, "decoder_last_pipeline_num_layers", 0, kMostLayers);
  run.embedding_is_a_layer = flag(args, "account_for_embedding_in_pipeline_split");
  run.loss_is_a_layer = flag(args, "account_for_loss_in_pipeline_split");
  if (flag(args, "standalone_embedding_stage")) run.first_stage_layers = 0;
  const Value layout = args.get("pipeline_model_parallel_layout");
  if (!layout.is_none()) run.stage_letters = read_stage_letters(layout);

  read_hybrid(args, run);

  run.gated_mlp = is_gated(args);
  run.glu_blocks = read_glu_blocks(args);
  run.mixers = read_mixers(args);
  run.transformer_engine = args.get("transformer_impl").string() != "local";
  run.grouped_experts = flag(args, "moe_grouped_gemm");
  run.linear_biases = flag(args, "add_bias_linear");
  run.decays_qk_norms = flag(args, "apply_wd_to_qk_layernorm");
  if (const LayerSpec* spec = layer_spec_of(args)) {
    run.norms_all_heads = spec->norms_all_heads;
    run.norm_modules = spec->norm_modules;
    if (spec->attention_by_kind) run.attention_kinds.windowed = windows_of(args, run.layers);
  }
  run.fp32_gradients = reduces_in_fp32(args);
  run.other_modules = other_modules(args);
  run.overlap_param_gather_with_step = flag(args, "overlap_param_gather_with_optimizer_step");

  if (flag(args, "group_query_attention")) {
    run.query_groups = args.get("num_query_groups").integer().value_or(0);
  }
  run.stacks_layers = layers_are_stacked(args);
  run.vocabulary = vocabulary_of_arguments(args);
  const int64_t divisor = args.get("make_vocab_size_divisible_by").integer().value_or(0);
  if (divisor > 0 && divisor <= kMostVocabulary) run.vocabulary_divisor = divisor;
  if (flag(args, "fp16")) run.computes_in = DType::f16;
  if (flag(args, "bf16")) run.computes_in = DType::bf16;
  run.random_by_data_rank = flag(args, "data_parallel_random_init");
  run.decoupled_lr = args.get("decoupled_lr").real();
  run.distributed_optimizer = args.get("use_distributed_optimizer").boolean();
  run.matrices = matrix_optimizer(args);

  run.overlap_grad_reduce = flag(args, "overlap_grad_reduce");
  constexpr int64_t kMostElements = int64_t{1} << 48;
  run.bucket_elements = optional_size(args, "ddp_bucket_size", 1, kMostElements);
  run.bucket_count = optional_size(args, "ddp_num_buckets", 1, kMostElements);
  run.pad_buckets = flag(args, "ddp_pad_buckets_for_high_nccl_busbw");
  return run;
}

}  // namespace ferry
