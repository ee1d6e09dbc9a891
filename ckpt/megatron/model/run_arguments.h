// The arguments of the run that saved a checkpoint, as far as they decide where parameters are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/attention_kinds.h"

namespace ferry {

struct ParallelTarget;  // ckpt/megatron/model/target_options.h

/// A custom pipeline split (`--pipeline-model-parallel-layout`), one string a stage in the order
/// stage 0 .. PP-1 of virtual stage 0, then of virtual stage 1, ...: one letter a layer, 'E'
/// embedding, 't' decoder layer, 'm' multi-token-prediction layer, 'L' loss.
using StageLetters = std::vector<std::string>;

/// Rows of gate and up that alternate in blocks of this many on each tensor rank, as fused kernels
/// need them; 0: a rank has all rows of gate, then all of up. A save takes the first half of a
/// rank's rows for gate and the second for up, whichever they are, so that the order in a
/// checkpoint depends on the number of ranks.
struct GluBlocks {
  int64_t dense = 0, experts = 0, shared = 0;
};

/// For the run's own modules: a setting that those ignore gives 0. unsupported when one is not a
/// number of rows.
GluBlocks read_glu_blocks(const Value& args);

/// Runs in which one optimizer has the matrices of layers (Muon and its kin) and another one (Adam,
/// Lion) all other parameters; see optimizer/matrix_optimizer.h.
struct MatrixOptimizer {
  bool any = false;         // matrices have an optimizer of their own
  bool layer_wise = false;  // whole parameters are spread over data ranks
  bool split = false;       // layer-wise for the matrices alone, next to a distributed optimizer
  std::string name;         // "muon"
};
MatrixOptimizer matrix_optimizer(const Value& args);

struct RunArguments {
  static constexpr int64_t kMostRanks = int64_t{1} << 24;  // in all, and of any size below

  int64_t layers = 0;
  int64_t mtp_layers = 0;  // multi-token-prediction depths
  bool repeated_mtp = false;
  bool hybrid = false;  // layers of several kinds, and names of their own (hybrid_layers.h)
  int64_t experts = 0;

  int64_t tensor = 1, pipeline = 1, virtual_pipeline = 1, context = 1;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  int64_t world_size = 0;  // 0: the arguments do not say
  int64_t optimizer_instances = 1;
  bool stages_before_data = false;  // use_tp_pp_dp_mapping: how ranks are counted

  std::optional<int64_t> first_stage_layers, last_stage_layers;
  bool embedding_is_a_layer = false;  // account_for_embedding_in_pipeline_split
  bool loss_is_a_layer = false;       // account_for_loss_in_pipeline_split
  StageLetters stage_letters;         // empty: none

  bool gated_mlp = false;  // swiglu or another gated linear unit
  GluBlocks glu_blocks;    // of its rows
  Architecture mixers;     // sizes of layers whose parameters are stored in pieces, and which
                           // layers have indexers; no others
  bool transformer_engine = true;  // what the modules are built of; false: Megatron-LM's own
  bool grouped_experts = false;
  bool linear_biases = false;    // in all linear layers, routers and experts too
  bool decays_qk_norms = false;  // weight decay of norms of queries and keys
  bool norms_all_heads = false;  // at once, where queries and keys are normed
  bool norm_modules = false;     // all norms of a layer are modules of their own
  AttentionKinds attention_kinds;
  bool fp32_gradients = true;  // reduced in fp32, whatever the parameters' dtype
  /// An argument that builds other modules than those whose parameters are known in their order
  /// ("moe_single_grouped_weight"); empty: there is none. Matters to what is written flat.
  std::string other_modules;
  bool overlap_param_gather_with_step = false;

  int64_t query_groups = 0;            // 0: every head has its own
  bool stacks_layers = true;           // false: layers differ and are saved one by one
  int64_t vocabulary = 0;              // tokens, without padding; 0: the arguments do not say
  int64_t vocabulary_divisor = 128;    // make_vocab_size_divisible_by
  std::optional<DType> computes_in;    // bf16 or f16, where that is not the type of the masters
  bool random_by_data_rank = false;    // each data rank has random number state of its own
  std::optional<double> decoupled_lr;  // of embeddings and output layer, where they have their own
  std::optional<bool> distributed_optimizer;  // nothing: the arguments do not say
  MatrixOptimizer matrices;

  bool overlap_grad_reduce = false;
  std::optional<int64_t> bucket_elements, bucket_count;
  bool pad_buckets = false;

  /// Data-parallel ranks (context ranks included) that share a buffer of dense, or of expert,
  /// parameters; 0 when the arguments do not say.
  int64_t dense_data_parallel() const;
  int64_t expert_data_parallel() const;

  /// How far apart in the run the ranks of one place in two neighbouring stages are; at least 1.
  int64_t stage_stride() const;

  /// Elements above which a gradient bucket is closed; nothing: there is one bucket. Bucketing is
  /// for the first chunk of the first stage, whose reduction would be waited for. `parameters`: of
  /// all chunks of the rank, elements.
  std::optional<int64_t> bucket_limit(int64_t stage, int64_t chunk, int64_t parameters) const;
};

/// Reads an argparse.Namespace. Absent arguments keep their defaults, as in the releases that do
/// not know them. unsupported when a size is not positive or absurd, and for a run whose parameters
/// are not placed by these rules (weight shards, hybrid layer patterns, ...).
RunArguments read_run_arguments(const Value& args);

/// The arguments of a run as they were saved, to be passed on, and what they say, read once:
/// assigning others reads those. Throws as read_run_arguments().
struct ParsedArguments : LoadedValue {
  ParsedArguments() = default;       // none; `run` is that of the defaults
  ParsedArguments(LoadedValue args)  // NOLINT: the same arguments
      : LoadedValue(std::move(args)), run(read_run_arguments(value)) {}

  RunArguments run;
};

/// Tokens of the vocabulary, without padding, as the arguments say; 0 when they do not.
int64_t vocabulary_of_arguments(const Value& args);

/// Layers with different parameters, by configuration, are saved one by one.
bool layers_are_stacked(const Value& args);

/// "Ett|(tt|)*29,m|L" as StageLetters. unsupported when it is no such text.
StageLetters parse_stage_letters(std::string_view text);

/// `args` with the target's sizes, and all arguments that follow from them (world_size,
/// num_layers_per_virtual_pipeline_stage, ...), everything else as it was. read_run_arguments() of
/// the result describes the target. invalid, naming the number that does not fit and those that
/// would, when they cannot be had so or Megatron-LM refuses the stages; unsupported without args.
LoadedValue apply_target(const ParsedArguments& args, const ParallelTarget& target);

}  // namespace ferry
