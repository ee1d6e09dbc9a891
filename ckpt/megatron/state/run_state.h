// The state of a run, wherever it comes from and wherever it goes.
//
// Every way to Megatron-LM's formats goes through this: a checkpoint that was opened (reshard), a
// Hugging Face folder (convert/import.h), the memory of a trainer. Every writer (torch_dist, legacy
// rank folders, plain DCP) takes it from here.
//
// Tensors are named and shaped as in a torch_dist checkpoint, global, however they were stored or
// will be: stacked layers ("decoder.layers.<suffix>", layer axis first) or one tensor a layer
// ("decoder.layers.<n>.<suffix>"). Optimizer state is one tensor a parameter and kind,
// "optimizer.state.{param,exp_avg,exp_avg_sq}.<name of the model tensor>", fp32 in its shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// The random number state of the ranks of one pipeline stage and one tensor rank, as the peer
/// stores it: a list of one dict, or of one for each data rank (--data-parallel-random-init). The
/// value's document holds its storages.
///
/// Megatron-LM keeps one for each pair, each valid on its own grid only: it uses them when it loads
/// at the same tensor and pipeline sizes and starts its streams anew otherwise. States of other
/// grids are kept along with those of the target's: they are used again when the checkpoint is
/// brought back to their grid.
struct RngState {
  int64_t stage = 0, tensor = 0;         // whose
  int64_t stages = 1, tensor_ranks = 1;  // of the grid
  LoadedValue value;
};

/// A stored object that is carried over as it is, under its whole key: the extra state of a module
/// ("decoder.layers.mlp.linear_fc1._extra_state/shard_2_4": by layer, at any layout), the rerun
/// state of a rank.
struct KeptObject {
  std::string name;
  std::string archive;  // a torch.save archive
};

struct RunState {
  SharedCatalog source;  // what the recipes' inputs count in
  std::vector<StateTensor> tensors;
  std::vector<Dropped> dropped;  // of the source, on purpose

  /// argparse.Namespace of the run that saved, or that a conversion made up. None in the state of
  /// what is not a run of Megatron-LM's (plain_state_of), which has tensors and objects only.
  ParsedArguments args;
  LoadedValue paths;  // without arguments: as those of Checkpoint
  std::optional<int64_t> iteration;
  /// Members of the common state other than args, iteration and the optimizer, in order:
  /// checkpoint_version, opt_param_scheduler, num_floating_point_operations_so_far, ...
  std::vector<std::pair<std::string, LoadedValue>> common;
  /// Parameter groups without parameters, one list an optimizer: dense, then experts. Empty when
  /// there is no optimizer state. For another expert layout than the source's: adapt_param_groups()
  /// (optimizer/param_groups.h).
  std::vector<LoadedValue> param_groups;
  LoadedValue grad_scaler;  // of fp16 runs, the same for all optimizers; none otherwise
  std::vector<RngState> rng;
  std::vector<KeptObject> objects;
  /// How the source's modules registered their parameters, where its flat buffers or files show it;
  /// nothing: the arguments decide.
  std::optional<ModuleChoice> modules;
  std::vector<std::string> warnings;  // what could not be carried over, one sentence each
};

/// "optimizer.state.<state>.<key>", with fp32_param spelled param.
std::string optimizer_entry_name(std::string_view state, std::string_view key);

/// The two parts of such a name. Nothing for another name.
struct OptimizerEntryName {
  std::string_view state, key;
};
std::optional<OptimizerEntryName> parse_optimizer_entry_name(std::string_view name);

/// The order of a state among those of a parameter: param, exp_avg, exp_avg_sq, then all others.
size_t usual_rank(std::string_view state);

/// The random number states of the target's grid, one a pipeline stage and tensor rank in this
/// order; empty when one is missing or they are for another number of data ranks.
std::vector<const RngState*> usable_rng(const RunState& state);

/// A sentence for the warnings: the random number states unless the format `holds_rng`, the state
/// of rerun checks, extra states of modules that say something. Empty when there is none of them.
std::string lost_objects(const RunState& state, std::string_view format, bool holds_rng);

}  // namespace ferry
