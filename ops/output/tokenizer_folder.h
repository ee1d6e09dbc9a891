// The tokenizer that a run keeps: in its own folder next to the state of an iteration, as
// Megatron-LM's save_tokenizer_assets writes it.
//
// Source: megatron/training/checkpointing.py (save_tokenizer_assets).
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/core/placed.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"
#include "convert/export.h"

namespace ferry {

inline constexpr const char* kTokenizerFolder = "tokenizer";  // in an iteration's folder

struct RunTokenizer {
  std::string folder;             // of the files
  std::vector<CopiedFile> files;  // named by their path inside it; none: the run keeps no tokenizer
  std::vector<std::string> warnings;  // files that are left out
};

/// All files of the iteration's own tokenizer folder, folders in it included; where it has none,
/// the tokenizer files that convert would take (find_tokenizer).
RunTokenizer tokenizer_of_run(const FileSystem& file_system, const Checkpoint& checkpoint);

/// The arguments, with a tokenizer_model in the folder `from` moved to `to`; unchanged where it is
/// elsewhere.
LoadedValue with_tokenizer_in(LoadedValue args, const std::string& from, const std::string& to);

/// Reads the files and plans them into `folder` of the target, before all that makes that a
/// checkpoint. exhausted when one is larger than 1 GiB.
void add_files(const FileSystem& file_system, const std::vector<CopiedFile>& files,
               const std::string& folder, PlannedOutput& planned);

}  // namespace ferry
