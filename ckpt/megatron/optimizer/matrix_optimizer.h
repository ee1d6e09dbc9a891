// Runs in which one optimizer has the matrices of layers (Muon and its kin) and another one (Adam,
// Lion) all other parameters: embeddings, output layer, norms, biases.
//
// A layer-wise optimizer gives each data rank whole parameters. Since May 2026 it has the matrices
// alone, next to a distributed optimizer for the rest; before, and with
// --no-use-layer-wise-param-layout, it has all parameters.
//
// Source: megatron/core/optimizer/emerging_optimizers.py (_is_muon_excluded),
// layer_wise_optimizer.py (is_managed_by_layer_wise_optimizer, _shard_params_ping_pong),
// __init__.py
// (_get_megatron_emerging_optimizer).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/model_layout.h"

namespace ferry {

/// Whether a parameter is one of its matrices. `name` is that of the model's tensor, `axes` are
/// those of the rank's part of it.
bool is_matrix_parameter(std::string_view name, size_t axes);

/// Whether a parameter group is one of an optimizer for matrices, if one of the chain is: those of
/// Muon have momentum, by whatever name, those of Adam and Lion have not.
bool has_momentum(const Value& group);

/// By number of the layout's tensor: whether it is made of such matrices.
std::vector<bool> matrix_tensors(const ModelLayout& layout, const ModuleChoice& modules);

/// One of the parameters that a layer-wise optimizer spreads over data ranks.
struct SpreadParameter {
  int64_t elements = 0;
  bool experts = false;  // of a group of routed experts, spread over their own data ranks
};

/// The data rank that has each, where an optimizer has all parameters: by rising size to and fro
/// over the ranks. `parameters` in the order of the optimizers' groups. A rank's groups then have
/// their parameters by rising size, too.
std::vector<int64_t> owners_to_and_fro(std::span<const SpreadParameter> parameters,
                                       int64_t data_ranks, int64_t expert_data_ranks);

// Optimizer state in files of its own next to a checkpoint: layer_wise_optimizer_N.pt, one of each
// data-parallel rank, with the state of the layers that it owns.
//
// Source: megatron/training/checkpointing.py (save_checkpoint), core/optimizer/
// layer_wise_optimizer.py (save_state_dict_to_file).

/// Whether a folder has such files.
bool has_layer_wise_files(const FileSystem& file_system, const std::string& folder);

/// Looks for such files in `folders`, those that exist, where a distributed checkpoint has no
/// optimizer state. `optimizer_problem` then says where it is: next to such a checkpoint nothing
/// says which rank folder a file belongs to.
void look_for_layer_wise_optimizer(Checkpoint& checkpoint, const std::vector<std::string>& folders);

}  // namespace ferry
