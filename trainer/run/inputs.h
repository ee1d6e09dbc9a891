// What a run reads, looked at before it begins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

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
