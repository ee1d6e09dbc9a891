#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

using A = TrainArguments;
using enum ArgumentKind;
constexpr ArgumentStatus kDerived = ArgumentStatus::derived;
constexpr ArgumentStatus kSaved = ArgumentStatus::saved;
constexpr ArgumentStatus kFork = ArgumentStatus::fork;
constexpr ArgumentStatus kRemoved = ArgumentStatus::removed;

constexpr ArgumentRow kDerivedRows[] = {
    {"", flag, "False", &A::is_global_batch_size_explicit, "",
     "_is_global_batch_size_explicitly_specified", kDerived},
    {"", integer, "0", &A::consumed_train_samples, "", "consumed_train_samples", kDerived},
    {"", integer, "0", &A::skipped_train_samples, "", "skipped_train_samples", kDerived},
    {"", integer, "0", &A::consumed_valid_samples, "", "consumed_valid_samples", kDerived},
    {"", integer, "1", &A::world_size, "", "world_size", kDerived},
    {"", integer, "1", &A::world_size, "", "inprocess_active_world_size", kDerived},
    {"", integer, "0", &A::rank, "", "rank", kDerived},
    {"", integer, "1", &A::transformer_pipeline_model_parallel_size, "",
     "transformer_pipeline_model_parallel_size", kDerived},
    {"", integer, "None", &A::virtual_pipeline_model_parallel_size, "",
     "virtual_pipeline_model_parallel_size", kDerived},
    {"", text, "torch.float32", &A::params_dtype, "", "params_dtype", kDerived},
    {"", flag, "True", &A::use_dist_ckpt, "", "use_dist_ckpt", kDerived},
    {"", integer, "1", {}, "", "gtp_weight_remat_size", kDerived},
    {"", integer, "1", {}, "", "expert_gtp_weight_remat_size", kDerived},
    {"", flag, "False", {}, "", "use_layer_wise_distributed_optimizer", kDerived},
    {"", flag, "False", {}, "", "variable_seq_lengths", kDerived},
    // 0: as many as the ranks of a launcher leave, or 1.
    {"--data-parallel-size", integer, "0", &A::data_parallel_size, "0..1048576", "", kDerived},
    {"", integer, "None", {}, "", "iteration", kSaved},
    {"", integer, "None", {}, "", "curr_iteration", kSaved},
    {"", real, "None", {}, "", "num_floating_point_operations_so_far", kSaved},
    {"", integer, "1", {}, "", "do_train", kSaved},
    {"", integer, "0", {}, "", "do_valid", kSaved},
    {"", integer, "0", {}, "", "do_test", kSaved},
};

constexpr ArgumentRow kForkRows[] = {
    // swiss-ai/Megatron-LM
    {"--trigger-path", text, "None", &A::trigger_path, "", "", kFork},
    {"--save-trigger", text, "save", &A::save_trigger, "", "", kFork},
    {"--exit-trigger", text, "exit", &A::exit_trigger, "", "", kFork},
    {"--ademamix-alpha", real, "5.0", &A::ademamix_alpha, "", "", kFork},
    {"--ademamix-alpha-warmup", integer, "-1", &A::ademamix_alpha_warmup, "-1..", "", kFork},
    {"--ademamix-beta3", real, "0.999", &A::ademamix_beta3, "", "", kFork},
    {"--ademamix-beta3-warmup", integer, "-1", &A::ademamix_beta3_warmup, "-1..", "", kFork},
    {"--goldfish-loss", flag, "False", &A::goldfish_loss, "", "", kFork},
    {"--goldfish-k", integer, "50", &A::goldfish_k, "1..", "", kFork},
    {"--goldfish-h", integer, "50", &A::goldfish_h, "1..", "", kFork},
    {"--xielu", flag, "False", &A::xielu, "", "", kFork},
    // Our own
    {"--dry-run", flag, "False", &A::dry_run, "", "", kFork},
    {"--metrics-json", text, "None", &A::metrics_json, "", "", kFork},
    {"--device", text, "auto", &A::device, "auto cpu cuda", "", kFork},
    {"--after-save", text, "None", &A::after_save, "", "", kFork},
    {"--after-save-seconds", integer, "3600", &A::after_save_seconds, "1..31536000", "", kFork},
    {"--keep-last", integer, "None", &A::keep_last, "1..", "", kFork},
    {"--free-space-for-saves", flag, "False", &A::free_space_for_saves, "", "", kFork},
    {"--staging-memory", text, "None", &A::staging_memory, "", "", kFork},
    {"--stopped-exit-code", integer, "0", &A::stopped_exit_code, "0..255", "", kFork},
};

// Megatron-LM deletes them once they have had their effect.
constexpr ArgumentRow kRemovedRows[] = {
    {"--recompute-activations", flag, "False", &A::recompute_activations, "", "", kRemoved},
    {"--batch-size", integer, "None", {}, "", "", kRemoved},
    {"--checkpoint-activations", flag, "False", {}, "", "", kRemoved},
    {"--warmup", integer, "None", {}, "", "", kRemoved},
    {"--model-parallel-size", integer, "None", {}, "", "", kRemoved},
    {"--cuda-graph-scope", texts, "None", {}, "", "cuda_graph_scope_deprecated", kRemoved},
};

}  // namespace

std::span<const ArgumentRow> derived_rows() { return kDerivedRows; }
std::span<const ArgumentRow> fork_rows() { return kForkRows; }
std::span<const ArgumentRow> removed_rows() { return kRemovedRows; }

}  // namespace ferry
