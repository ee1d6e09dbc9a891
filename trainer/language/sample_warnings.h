// Warns about data that a resumed run sees and an uninterrupted one would not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/run_checkpoint.h"

namespace ferry {

/// If a run resumes from `source` in the middle of its data: a warning if arguments differ from the
/// checkpoint's and change which samples follow (with about how many were seen before and how many
/// are skipped unseen), one if they change the loss of a sample, one for another tokenizer, and one
/// if the checkpoint does not say how many samples were consumed. (Megatron-LM is silent.) No
/// warnings for a new run (iteration 0, weights alone, a phase's first sample), or for other
/// arguments that select the same samples, such as copies of the data. What cannot be compared gets
/// a warning, too; but data that no longer exist at the checkpoint's path are assumed to be the
/// files of the same name at this run's, which is added to `notes`.
std::vector<std::string> sample_warnings(const std::shared_ptr<const FileSystem>& files,
                                         const TrainArguments& arguments, const Source& source,
                                         std::vector<std::string>* notes = nullptr);

}  // namespace ferry
