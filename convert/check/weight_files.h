// The files of a Hugging Face folder's weights: index, shards, and weights that are not part of the
// model for the program that loads it.
//
// Source: vLLM model_loader/default_loader.py and weight_utils.py, which SGLang's loader follows:
// with an index they read the files that it names and that are there, without one all
// *.safetensors, and consolidated*.safetensors before all others (vLLM). transformers reads shards
// by an index only.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"
#include "convert/check/findings.h"

namespace ferry {

/// Why the weights of `folder` could not be opened (`error` is what open_checkpoint() said): each
/// shard that the index names and the folder lacks, with the number of its tensors, and each file
/// that cannot be read.
void find_unread_weights(const std::shared_ptr<const FileSystem>& files, const std::string& folder,
                         const std::string& error, Findings& findings);

/// What is wrong with the files of a folder that could be opened.
void check_weight_files(const Checkpoint& checkpoint, Loader loader, Findings& findings);

}  // namespace ferry
