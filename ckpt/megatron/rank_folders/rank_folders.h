// Megatron-LM's legacy checkpoints (`--ckpt-format torch`): one folder a model-parallel rank,
// mp_rank_TT[_PPP[_EEE]]/model_optim_rng.pt, each a pickle of that rank's local state, and
// distrib_optim.pt next to it where the distributed optimizer was on.
//
// The catalog is the one that Megatron-LM's torch_dist checkpoint of the same state gives: global
// tensors, homogeneous layers stacked under `decoder.layers.<suffix>`, optimizer state as
// `optimizer.state.{param,exp_avg,exp_avg_sq}.<key>`. Tensor-parallel pieces are boxes of the
// global tensor; copies that several ranks hold are taken once.
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name, generate_state_dict),
// megatron/core/optimizer/{distrib_optimizer,optimizer}.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// True when `folder` holds a folder named like mp_rank_00 or mp_rank_00_000.
bool is_legacy_folder(const FileSystem& file_system, const std::string& folder);

/// Opens the iteration folder `folder`. Fills format, path, writer, iteration, catalog, args,
/// layout, optimizer, optimizer_problem and notes. With `raw`, every rank's tensors are listed by
/// themselves as `<rank folder>/<file>:<dotted path>`. not_found when ranks are missing (which);
/// mismatch when ranks do not fit together; unsupported for a model this reader cannot name.
Checkpoint open_legacy(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                       bool raw = false);

}  // namespace ferry
