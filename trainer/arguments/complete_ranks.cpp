#include <fmt/format.h>

#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/stage_letters.h"
#include "trainer/arguments/checks.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/option_words.h"

namespace ferry {
namespace {

using Notes = std::vector<std::string>;

int64_t model_ranks(const TrainArguments& a) {
  return a.tensor_model_parallel_size * a.pipeline_model_parallel_size * a.context_parallel_size;
}

void complete_data_ranks(TrainArguments& a, const Launch& launch) {
  if (!a.expert_tensor_parallel_size) a.expert_tensor_parallel_size = a.tensor_model_parallel_size;
  const int64_t ranks = model_ranks(a);
  check_size("tensor x pipeline x context parallel ranks", ranks, 1, RunArguments::kMostRanks);
  if (launch.is_alone()) {
    a.world_size = ranks * std::max<int64_t>(a.data_parallel_size, 1);
  } else {
    a.world_size = launch.world_size;
    a.rank = launch.rank;
  }
  check_size("the number of ranks", a.world_size, 1, RunArguments::kMostRanks);
  check_fits(a.world_size % ranks == 0,
             "{} ranks ({}) are not a multiple of {} tensor x {} pipeline x {} context parallel "
             "ranks = {}: start a multiple of {}",
             a.world_size, launch.launcher, a.tensor_model_parallel_size,
             a.pipeline_model_parallel_size, a.context_parallel_size, ranks, ranks);
  const int64_t data = a.world_size / ranks;
  check_fits(a.data_parallel_size == 0 || a.data_parallel_size == data,
             "--data-parallel-size {}: {} started {} ranks, which leaves {} for data; leave it out "
             "or start {}",
             a.data_parallel_size, launch.launcher, a.world_size, data,
             ranks * a.data_parallel_size);
  a.data_parallel_size = data;
}

void complete_expert_ranks(TrainArguments& a) {
  const int64_t ranks = *a.expert_tensor_parallel_size * a.expert_model_parallel_size;
  const int64_t stage_ranks = a.world_size / a.pipeline_model_parallel_size;
  check_fits(
      stage_ranks % ranks == 0,
      "--expert-model-parallel-size {} x --expert-tensor-parallel-size {}: the {} ranks of a "
      "pipeline stage are not a multiple of {}; use more data parallel ranks or fewer of these",
      a.expert_model_parallel_size, *a.expert_tensor_parallel_size, stage_ranks, ranks);
  if (a.expert_model_parallel_size == 1) return;
  check_fits(a.num_experts.has_value(),
             "--expert-model-parallel-size {} without experts: give --num-experts or leave it out",
             a.expert_model_parallel_size);
  check_splits(*a.num_experts, "experts", a.expert_model_parallel_size,
               "--expert-model-parallel-size");
}

// Sizes that are split over tensor parallel ranks.
void check_tensor_ranks(const TrainArguments& a) {
  const int64_t tensor = a.tensor_model_parallel_size;
  constexpr std::string_view kFlag = "--tensor-model-parallel-size";
  check_splits(*a.num_attention_heads, "attention heads", tensor, kFlag);
  if (a.group_query_attention && !a.multi_latent_attention) {
    const int64_t groups = a.num_query_groups;
    check_fits(groups % tensor == 0 || tensor % groups == 0,
               "--num-query-groups {} and {} {}: one must be a multiple of the other", groups,
               kFlag, tensor);
  }
  check_splits(*a.ffn_hidden_size, "elements of --ffn-hidden-size", tensor, kFlag);
  if (a.num_experts) {
    check_splits(*a.moe_ffn_hidden_size, "elements of --moe-ffn-hidden-size",
                 *a.expert_tensor_parallel_size, "--expert-tensor-parallel-size");
    check_fits(!a.add_bias_linear || *a.expert_tensor_parallel_size == 1,
               "experts with biases are not split over tensor ranks, as in Megatron-LM: give "
               "--expert-tensor-parallel-size 1, or --disable-bias-linear");
    check_splits(a.moe_shared_expert_intermediate_size.value_or(0),
                 "elements of --moe-shared-expert-intermediate-size", tensor, kFlag);
    check_fits(tensor == 1 || a.sequence_parallel,
               "--num-experts with {} {} needs --sequence-parallel", kFlag, tensor);
  }
}

void complete_sequence(TrainArguments& a, Notes& notes) {
  if (a.tensor_model_parallel_size == 1 && a.sequence_parallel) {
    notes.push_back("--sequence-parallel is off: there is one tensor parallel rank");
    a.sequence_parallel = false;
  }
  const int64_t context = a.context_parallel_size;
  if (context > 1) {
    check_fits(
        *a.seq_length % (2 * context) == 0,
        "--seq-length {} is not a multiple of 2 x --context-parallel-size {}: {} is the next",
        *a.seq_length, context, (*a.seq_length / (2 * context) + 1) * 2 * context);
  }
  const int64_t parts = context * (a.sequence_parallel ? a.tensor_model_parallel_size : 1);
  check_fits(*a.seq_length % parts == 0,
             "--seq-length {} is not a multiple of the {} parts that --sequence-parallel splits it "
             "into: {} is the next",
             *a.seq_length, parts, (*a.seq_length / parts + 1) * parts);
}

// Rephrases the error with arguments.
template <typename Check>
void check_pipeline(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid, in_arguments(error.what()));
  }
}

RunArguments pipeline_of(const TrainArguments& a) {
  RunArguments run;
  run.layers = *a.num_layers;
  run.mtp_layers = a.mtp_num_layers.value_or(0);
  run.repeated_mtp = a.mtp_use_repeated_layer;
  run.pipeline = a.pipeline_model_parallel_size;
  run.virtual_pipeline = a.virtual_pipeline_model_parallel_size.value_or(1);
  run.first_stage_layers = a.decoder_first_pipeline_num_layers;
  run.last_stage_layers = a.decoder_last_pipeline_num_layers;
  run.embedding_is_a_layer = a.account_for_embedding_in_pipeline_split;
  run.loss_is_a_layer = a.account_for_loss_in_pipeline_split;
  return run;
}

int64_t virtual_stages(const TrainArguments& a) {
  if (a.num_virtual_stages_per_pipeline_rank) return *a.num_virtual_stages_per_pipeline_rank;
  if (!a.num_layers_per_virtual_pipeline_stage) return 1;
  check_fits(!a.decoder_first_pipeline_num_layers && !a.decoder_last_pipeline_num_layers,
             "--num-layers-per-virtual-pipeline-stage is for even stages: with "
             "--decoder-first-pipeline-num-layers or -last-, give "
             "--num-virtual-stages-per-pipeline-rank");
  const int64_t layers = *a.num_layers + a.account_for_embedding_in_pipeline_split +
                         a.account_for_loss_in_pipeline_split;
  check_splits(layers, "layers", a.pipeline_model_parallel_size, "--pipeline-model-parallel-size");
  const int64_t stage_layers = layers / a.pipeline_model_parallel_size;
  check_splits(stage_layers, "layers of a stage", *a.num_layers_per_virtual_pipeline_stage,
               "--num-layers-per-virtual-pipeline-stage");
  return stage_layers / *a.num_layers_per_virtual_pipeline_stage;
}

void complete_stages(TrainArguments& a) {
  const int64_t stages = a.pipeline_model_parallel_size;
  a.transformer_pipeline_model_parallel_size = stages;
  const std::string& letters = a.pipeline_model_parallel_layout;
  check_one_of({{"--num-layers-per-virtual-pipeline-stage",
                 a.num_layers_per_virtual_pipeline_stage.has_value()},
                {"--num-virtual-stages-per-pipeline-rank",
                 a.num_virtual_stages_per_pipeline_rank.has_value()},
                {"--pipeline-model-parallel-layout", !letters.empty()}});
  RunArguments run = pipeline_of(a);
  int64_t virtual_count = 1;
  if (!letters.empty()) {
    run.stage_letters = parse_stage_letters(letters, ErrorKind::invalid);
    const auto count = static_cast<int64_t>(run.stage_letters.size());
    check_fits(count % stages == 0,
               "--pipeline-model-parallel-layout has {} stages: must be a multiple of "
               "--pipeline-model-parallel-size {}",
               count, stages);
    virtual_count = count / stages;
    check_stage_letters(run.stage_letters, stages);
  } else {
    virtual_count = virtual_stages(a);
    check_size("--num-virtual-stages-per-pipeline-rank", virtual_count, 1, 1 << 16);
  }
  a.virtual_pipeline_model_parallel_size.reset();
  if (virtual_count > 1) a.virtual_pipeline_model_parallel_size = virtual_count;
  run.virtual_pipeline = virtual_count;
  check_pipeline([&] {
    if (letters.empty()) check_stages(run);
    PipelineLayout{run};
  });
  if (virtual_count == 1) {
    a.overlap_p2p_comm = false;
    a.align_param_gather = false;
  }
}

}  // namespace

int64_t expert_data_parallel_size(const TrainArguments& a) {
  return a.world_size / (a.pipeline_model_parallel_size * *a.expert_tensor_parallel_size *
                         a.expert_model_parallel_size);
}

void complete_ranks(TrainArguments& a, const Launch& launch, Notes& notes) {
  complete_data_ranks(a, launch);
  complete_expert_ranks(a);
  complete_sequence(a, notes);
  check_tensor_ranks(a);
  complete_stages(a);
  // Weights are sharded over tensor parallel ranks only.
  const auto check_shards = [](auto& shards, int64_t ranks, std::string_view flag) {
    check_fits(shards.value_or(ranks) == ranks,
               "{} {}: must equal the number of tensor parallel ranks, {}", flag,
               shards.value_or(0), ranks);
    shards = ranks;
  };
  check_shards(a.tensor_parallel_num_weight_shards, a.tensor_model_parallel_size,
               "--tensor-parallel-num-weight-shards");
  check_shards(a.expert_tensor_parallel_num_weight_shards, *a.expert_tensor_parallel_size,
               "--expert-tensor-parallel-num-weight-shards");
  if (a.overlap_param_gather) {
    check_fits(
        a.use_distributed_optimizer && a.overlap_grad_reduce,
        "--overlap-param-gather needs --use-distributed-optimizer and --overlap-grad-reduce");
  }
}

}  // namespace ferry
