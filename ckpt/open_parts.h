// Folders of which one part is the checkpoint's model: a step of a training program, with the
// optimizer in another part, tokenizer, configuration and state in yet others.
//
//   pytorch_model_fsdp_0/   optimizer_0/       Accelerate, and Trainer with FSDP (also .bin files)
//   policy/weights/         policy/optimizer/  NeMo-RL
//   model/                  optim/             NeMo AutoModel
//   actor/dist_ckpt/, actor/                   verl
//   model_and_optim/                           OLMo-core
//   trainer/                                   prime-rl
//   weights/                                   next to huggingface/, its configuration
//
// Source: accelerate/utils/fsdp_utils.py, nemo_rl/utils/{checkpoint,native_checkpoint}.py,
// nemo_automodel/components/checkpoint/checkpointing.py, verl/utils/checkpoint/*.py,
// olmo_core/train/checkpoint.py.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Names inside a folder.
struct CheckpointParts {
  std::string model;
  std::string optimizer;  // empty: none is known by its name
};

/// The parts of `folder` by the table above, where `is_checkpoint` takes the model's. Nothing where
/// it has none. invalid when Accelerate left several models.
std::optional<CheckpointParts> checkpoint_parts(
    const FileSystem& file_system, const std::string& folder,
    const std::function<bool(const std::string& path)>& is_checkpoint);

}  // namespace ferry
