// A lone file, opened as a checkpoint.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// A safetensors file, one of torch.save, or a .nemo archive, by its first bytes. invalid for a
/// part of a checkpoint; unsupported, with what to do, for anything else.
Checkpoint open_checkpoint_file(std::shared_ptr<const FileSystem> file_system,
                                const std::string& path, bool raw);

/// Where the files of a checkpoint at `path` are: `file_system`, in which a tar archive at `path`
/// is a folder.
std::shared_ptr<const FileSystem> with_archive(std::shared_ptr<const FileSystem> file_system,
                                               const std::string& path);

/// True where the first bytes are those of torch.save, of either form.
bool is_torch_save_file(const ReadableFile& file);

// A folder whose model is one file of torch.save, or a .nemo archive: what programs write with
// torch.save and leave alone.
//
//   epE-baN-rank0.pt                            Composer (llm-foundry)
//   model_N.pt, optim_N_rankR.pt, meta_N.json   nanochat
//   lit_model.pth, model_config.yaml            litgpt
//   consolidated.00.pth, params.json            Meta's llama
//   *step=N*.ckpt, last.ckpt                    Lightning
//
// Source: composer/callbacks/checkpoint_saver.py, nanochat/checkpoint_manager.py,
// litgpt/utils.py (save_hyperparameters), llama/generation.py (Llama.build),
// lightning/pytorch/callbacks/model_checkpoint.py.

/// True where there is at least one such file. Optimizers, schedulers and the like do not count.
bool has_lone_file(const FileSystem& file_system, const std::string& folder);

/// Opens it, and notes what else is in the folder; of several steps of a run the last. invalid,
/// naming them, where there are several and nothing says which; unsupported for the shards of one
/// model.
Checkpoint open_lone_file(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                          bool raw);

}  // namespace ferry
