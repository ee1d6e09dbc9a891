#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kParallelRows[] = {
    // Ranks, optimizer shards, recomputation
    {"--tensor-model-parallel-size", integer, "1", &A::tensor_model_parallel_size, "1..1048576"},
    {"--pipeline-model-parallel-size", integer, "1", &A::pipeline_model_parallel_size,
     "1..1048576"},
    {"--sequence-parallel", flag, "False", &A::sequence_parallel},
    {"--context-parallel-size", integer, "1", &A::context_parallel_size, "1..1048576"},
    {"--expert-model-parallel-size", integer, "1", &A::expert_model_parallel_size, "1..1048576"},
    {"--expert-tensor-parallel-size", integer, "None", &A::expert_tensor_parallel_size,
     "1..1048576"},
    {"--num-layers-per-virtual-pipeline-stage", integer, "None",
     &A::num_layers_per_virtual_pipeline_stage, "1.."},
    {"--num-virtual-stages-per-pipeline-rank", integer, "None",
     &A::num_virtual_stages_per_pipeline_rank, "1..65536"},
    {"--decoder-first-pipeline-num-layers", integer, "None", &A::decoder_first_pipeline_num_layers,
     "0.."},
    {"--decoder-last-pipeline-num-layers", integer, "None", &A::decoder_last_pipeline_num_layers,
     "0.."},
    {"--pipeline-model-parallel-layout", text, "None", &A::pipeline_model_parallel_layout},
    {"--account-for-embedding-in-pipeline-split", flag, "False",
     &A::account_for_embedding_in_pipeline_split},
    {"--account-for-loss-in-pipeline-split", flag, "False", &A::account_for_loss_in_pipeline_split},
    {"--microbatch-group-size-per-virtual-pipeline-stage", integer, "None",
     &A::microbatch_group_size_per_vp_stage, "1..", "microbatch_group_size_per_vp_stage"},
    {"--no-overlap-p2p-communication", negated, "True", &A::overlap_p2p_comm, "",
     "overlap_p2p_comm"},
    {"--no-align-param-gather", negated, "True", &A::align_param_gather, "", "align_param_gather"},
    {"--tensor-parallel-num-weight-shards", integer, "None", &A::tensor_parallel_num_weight_shards,
     "1..1048576"},
    {"--expert-tensor-parallel-num-weight-shards", integer, "None",
     &A::expert_tensor_parallel_num_weight_shards, "1..1048576"},
    {"--use-distributed-optimizer", flag, "False", &A::use_distributed_optimizer},
    {"--overlap-grad-reduce", flag, "False", &A::overlap_grad_reduce},
    {"--overlap-param-gather", flag, "False", &A::overlap_param_gather},
    {"--ddp-bucket-size", integer, "None", &A::ddp_bucket_size, "1.."},
    {"--ddp-num-buckets", integer, "None", &A::ddp_num_buckets, "1.."},
    {"--ddp-pad-buckets-for-high-nccl-busbw", flag, "False",
     &A::ddp_pad_buckets_for_high_nccl_busbw},
    {"--recompute-granularity", text, "None", &A::recompute_granularity, "full selective"},
    {"--recompute-method", text, "None", &A::recompute_method, "uniform block"},
    {"--recompute-num-layers", integer, "None", &A::recompute_num_layers, "1.."},
    {"--recompute-modules", texts, "None", &A::recompute_modules},
};

}  // namespace

std::span<const ArgumentRow> parallel_rows() { return kParallelRows; }

}  // namespace ferry
