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

}  // namespace ferry
