// The names of a Hugging Face folder's tensors as transformers asks for them, whatever the program
// that saved the model had wrapped around it.
#pragma once

#include <string>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Takes off what torch.compile, DDP, FSDP, activation checkpointing or an enclosing model put
/// around the names of `checkpoint` (Format::hugging_face; others stay as they are). Of a known
/// family the rest must be the family's names; of another model only what no model calls a module
/// of its own is taken off, and a module that is repeated. Returns a sentence on what was taken
/// off; empty where the names are right already. corrupt when two tensors would get one name.
std::string unwrap_names(Checkpoint& checkpoint);

/// Gives the tensors of a Hugging Face folder, as open_checkpoint() found them, the names that
/// transformers asks for, as open_model() does; others stay as they are.
void name_as_model(Checkpoint& checkpoint);

/// open_checkpoint(), and the names of a Hugging Face folder unwrapped, which a note reports, as
/// one does that a tied embedding got its name. With `options.raw`, names stay as they are stored.
Checkpoint open_model(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                      const OpenOptions& options = {});

}  // namespace ferry
