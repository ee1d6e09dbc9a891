// The optimizer's state in a torch_dist checkpoint, whatever layout it was saved in, as one entry
// a parameter.
//
// Megatron-LM stores fp32 parameters and Adam moments in one of several layouts: per parameter in
// model space (fully_reshardable), as flat gradient buckets of which the checkpoint records neither
// parameter names nor order (dp_reshardable), or as flattened fragments of each parameter
// (fully_sharded_model_space). Here all of them become the same entries
// `optimizer.state.{param,exp_avg,exp_avg_sq}.<model key>`: fp32, the model tensor's shape,
// Role::optimizer. Metadata alone is read, no tensor data.
//
// Source: megatron/core/optimizer/distrib_optimizer.py, docs/api-guide/core/dist_checkpointing.md.
#pragma once

#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/model_layout.h"

namespace ferry {

struct OptimizerState {
  OptimizerLayout layout = OptimizerLayout::none;
  /// Why state that is on disk is left out of the catalog; empty when nothing is. One sentence or
  /// two, fit for Checkpoint::optimizer_problem.
  std::string problem;
  /// How modules registered the parameters, where flat buffers show it.
  std::optional<ModuleChoice> modules;
};

/// Rewrites the optimizer entries of a raw torch_dist catalog in place, at the position of the
/// first of them, in the order of the model's entries. Model entries must already have the names
/// and shapes that the caller shows; all other entries are left as they are.
///
/// A flat chunk that holds elements of a parameter becomes one or two chunks of that parameter's
/// entry (a box, or a run of a box) in the same item, with Extent::payload_offset moved to the
/// first element. Copies of one parameter (tensor-parallel replicas, tied embeddings) are taken
/// once, from the first rank that has one. Flat entries are removed, decoded or not; objects
/// (param_groups, per_bucket_numel) stay. Where the order of the parameters cannot be established
/// beyond doubt the state is left out and `problem` says why.
///
/// `args` is the run's argparse.Namespace (none where the checkpoint has none), `metadata` the
/// content metadata (none in old checkpoints). Reads the small per_bucket_numel objects. Throws
/// corrupt when an object or chunk contradicts itself.
OptimizerState describe_optimizer(Catalog& catalog, const Value& args, const Value& metadata);

}  // namespace ferry
