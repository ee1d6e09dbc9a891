// NeMo 2 checkpoints: a folder with weights/ (a torch_dist checkpoint of the Lightning module,
// whose keys start with "module.") and context/ (the configuration: model.yaml, io.json, tokenizer
// files).
//
// Source: nemo/lightning/{ckpt_utils,megatron_parallel}.py, nemo/lightning/io/{pl,mixin}.py,
// nemo/lightning/pytorch/callbacks/model_checkpoint.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// True when `folder` holds a folder weights/ with a torch_dist checkpoint, or weights/ and
/// context/.
bool is_nemo_folder(const FileSystem& file_system, const std::string& folder);

/// The NeMo folder that `path` is the weights/ of; empty when it is none.
std::string nemo_folder_of_weights(const FileSystem& file_system, const std::string& path);

/// Opens a NeMo 2 folder; Checkpoint::path is that folder. "module." is taken off the names of
/// tensors and objects. Checkpoint::args is built from the model configuration in
/// context/model.yaml: its fields, and also the names that Megatron-LM's arguments have for the
/// same things (num_experts, swiglu, norm_epsilon, untie_embeddings_and_output_weights, ...); its
/// class is the object's class. The parallel layout comes from the strategy in context/io.json.
/// With `raw`, names stay as stored. not_found when NeMo's "-unfinished" marker is next to the
/// folder, else as open_torch_dist.
Checkpoint open_nemo(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                     bool raw = false);

// Models of NeMo 1: a .nemo archive, a tar of
//
//   model_config.yaml
//   model_weights.ckpt                     a file of torch.save, or
//   model_weights/                         a distributed checkpoint (torch_dist, zarr), or
//   mp_rank_00/model_weights.ckpt, ...     a file of each tensor or pipeline rank
//
// or the folder that it was extracted to.
//
// Source: nemo/core/connectors/save_restore_connector.py,
// nemo/collections/nlp/parts/nlp_overrides.py (NLPSaveRestoreConnector).

/// True when `folder` holds model_config.yaml and weights.
bool is_nemo1_folder(const FileSystem& file_system, const std::string& folder);

/// Tensors under the names that the module had. unsupported for files of ranks, and as
/// open_torch_file() and open_dcp().
Checkpoint open_nemo1(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                      bool raw);

}  // namespace ferry
