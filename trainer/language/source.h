// What a run starts from: random weights, a checkpoint to resume, or the weights of another
// checkpoint.
//
// Source: Megatron-LM megatron/training/checkpointing.py (load_checkpoint, _load_base_checkpoint).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/run_checkpoint.h"

namespace ferry {

struct SourcePlace {
  std::string path;           // a run folder, a checkpoint, or a Hugging Face folder
  std::string iteration;      // in a run folder; empty: the tracker's
  bool weights_only = false;  // start at iteration 0 with a new optimizer
};

/// --load or, if that is empty or missing, --pretrained-checkpoint; the later one of persistent and
/// other checkpoints. Empty: random weights. not_found with --exit-on-missing-checkpoint, or if
/// --pretrained-checkpoint does not exist.
std::optional<SourcePlace> find_source(const FileSystem& files, const TrainArguments& arguments);

/// invalid if --save (may be empty) is a file, an iteration's folder, or another checkpoint, which
/// the run would hide.
void check_save_folder(const FileSystem& files, const std::string& folder);

/// Takes over arguments from the source before complete_arguments(): --use-checkpoint-args, and all
/// of a Hugging Face model's. Arguments in `words`, the whole command line, win.
void adopt_source_arguments(const std::shared_ptr<const FileSystem>& files,
                            const std::vector<std::string>& words, TrainArguments& arguments,
                            std::vector<std::string>& notes);

/// Warns if --load was given and nothing was found there, which is normal for a chain's first job
/// but may be a wrong path (a run in a subfolder is suggested), and if --save-interval was given
/// without --save.
std::vector<std::string> folder_warnings(const FileSystem& files, const TrainArguments& arguments,
                                         bool is_found);

/// A warning if the arguments describe another model than the source's own, which has the same
/// parameters but computes something else: other positions, windows, activations. (Megatron-LM is
/// silent.) A longer --max-position-embeddings is no other model.
std::vector<std::string> model_warnings(const TrainArguments& arguments, const Source& source);

/// Called by all ranks. Null if find_source() returns nothing. mismatch if the checkpoint's model
/// is not that of the arguments.
std::unique_ptr<const Source> open_source(const std::shared_ptr<const FileSystem>& files,
                                          const TrainArguments& arguments, Group& group);

// Checks of a run's input before it starts.

/// invalid if the run is to train and has no training data.
void check_train_data(const TrainArguments& arguments, bool has_train_split);

/// invalid if --save is not a run folder (check_save_folder()), or --metrics-json is a folder.
void check_outputs(const FileSystem& files, const TrainArguments& arguments);

/// Checks the run's save folder, the metadata of the checkpoint that it would start from, and its
/// token files (only that they are complete). Writes nothing. Errors are those of the run; returns
/// its warnings, loop_warnings() included.
std::vector<std::string> check_inputs(const std::shared_ptr<const FileSystem>& files,
                                      const TrainArguments& arguments);

}  // namespace ferry
