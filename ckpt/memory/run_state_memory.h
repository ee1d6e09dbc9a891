// Saving and loading by the state of a run of Megatron-LM's (RunState), for ferry's own trainer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/load.h"
#include "ckpt/memory/save.h"

namespace ferry {

/// The tensors as `state`, made of `checkpoint`, has them: whatever its recipes do on the way
/// (other names and stacking, a padded vocabulary, a Hugging Face model as Megatron-LM's).
TensorSet tensors_of(const Checkpoint& checkpoint, const RunState& state);

/// Loads them into regions that the host cannot write, by way of two buffers of the stager's: one
/// is read into while the other is on its way to its place. A buffer has `buffer_bytes`, or, where
/// the checkpoint is compressed, as many as the largest region, whose streams are then decoded
/// once.
void load_staged(const Checkpoint& checkpoint, const RunState& state,
                 std::span<const Region> regions, Stager& stager,
                 uint64_t buffer_bytes = uint64_t{256} << 20, EngineOptions options = {});

/// Snapshots of a Megatron-LM run. `state` has what is not a tensor (args, param_groups, scheduler,
/// random number states; the same on all ranks), made by hand or by state_of() of a checkpoint; its
/// own source, recipes and iteration do not count. The tensors that ranks give are named, shaped
/// and typed as RunState says; optimizer state, if any, as the shards that a rank holds of each
/// parameter's: of a distributed optimizer the runs that shards_of_rank() says
/// (megatron/optimizer/buckets/model_buffers.h). Its dtype may be another than RunState says, which
/// is then what is written: of floating-point numbers, or i16 where regions have lower halves.
///
/// As fully_reshardable or plain, each rank writes what it gave, so that the files are those of the
/// group's ranks, whatever layout the arguments name. As dp_reshardable the group's ranks are those
/// of the layout that the arguments name, each writes its part of the flat buckets, and
/// `state.tensors` names the tensors of the model and of the optimizer. Never compressed; otherwise
/// as plan_torch_dist().
std::shared_ptr<const SnapshotFormat> torch_dist_format(RunState state,
                                                        TorchDistOptions options = {});

/// Snapshots of a Megatron-LM run: as torch_dist_format(), of a state that names the tensors of the
/// model and of the optimizer. The group's ranks are those of the layout that the arguments name.
/// The first rank of each model-parallel rank's folder writes its model; a distributed optimizer's
/// flat buffers are written by the ranks that share them, each its part. Otherwise as
/// plan_legacy(). A snapshot without objects. `optimizer`: with its state.
std::shared_ptr<const SnapshotFormat> legacy_format(RunState state, bool optimizer = true);

}  // namespace ferry
