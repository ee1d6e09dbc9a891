// What a run begins with: weights at random, a checkpoint of its own to go on from, or the weights
// of another.
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
  std::string iteration;      // of a run folder; empty: the tracker's
  bool weights_only = false;  // iteration 0 and a new optimizer follow
};

/// Nothing: weights at random. --load, or where that holds nothing yet --pretrained-checkpoint; of
/// persistent and other checkpoints the later one. not_found with --exit-on-missing-checkpoint, or
/// for a --pretrained-checkpoint that is not there.
std::optional<SourcePlace> find_source(const FileSystem& files, const TrainArguments& arguments);

/// invalid where --save (empty: nothing is saved) is a file, an iteration, or another checkpoint,
/// which would hold the run, or be hidden by it.
void check_save_folder(const FileSystem& files, const std::string& folder);

/// What the command line leaves to the source, taken over before complete_arguments():
/// --use-checkpoint-args, and all of a Hugging Face model. `words`, the whole command line, wins
/// where it says something.
void adopt_source_arguments(const std::shared_ptr<const FileSystem>& files,
                            const std::vector<std::string>& words, TrainArguments& arguments,
                            std::vector<std::string>& notes);

/// Warnings where --load was given and nothing was found there, as of a chain's first job (of a
/// wrong path it must be seen; a run in a folder below is named), and where saves are asked for
/// that go nowhere.
std::vector<std::string> folder_warnings(const FileSystem& files, const TrainArguments& arguments,
                                         bool is_found);

/// All ranks call it alike. Null where find_source() gives nothing. mismatch when the checkpoint's
/// model is not that of the arguments.
std::unique_ptr<const Source> open_source(const std::shared_ptr<const FileSystem>& files,
                                          const TrainArguments& arguments, Group& group);

// What a run reads, looked at before it begins.

/// invalid where there is nothing to train on, though the run is to train.
void check_train_data(const TrainArguments& arguments, bool has_train_split);

/// invalid where --save is no run's folder (check_save_folder()), or --metrics-json a folder.
void check_outputs(const FileSystem& files, const TrainArguments& arguments);

/// Looks at where the run would save, at the checkpoint that it would begin with, at its metadata
/// alone, and at its token files, alone what says that they are whole. Writes nothing. Errors are
/// those of the run; returns what it would warn of, loop_warnings() included.
std::vector<std::string> check_inputs(const std::shared_ptr<const FileSystem>& files,
                                      const TrainArguments& arguments);

}  // namespace ferry
