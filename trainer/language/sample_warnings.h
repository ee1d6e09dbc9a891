// What a run that goes on sees of its data that the run before it would not have seen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/run_checkpoint.h"

namespace ferry {

/// Where a run goes on from `source` in the middle of its data: one warning for arguments that
/// differ from those in the checkpoint and change which samples follow (with about how many of
/// these were seen before, and how many are passed over unseen), one for those that change what is
/// learnt of a sample, one for another tokenizer, and one where the checkpoint does not say how
/// many samples were consumed. Megatron-LM goes on without a word. Nothing of a run that begins
/// anew (iteration 0, weights alone, a phase's first sample), or of other arguments that lead to
/// the same samples, such as copies of the data elsewhere. What cannot be compared is warned of,
/// too; but data that are not at the checkpoint's path, while files of the same name are at this
/// run's, are taken for the same, as of `notes`.
std::vector<std::string> sample_warnings(const std::shared_ptr<const FileSystem>& files,
                                         const TrainArguments& arguments, const Source& source,
                                         std::vector<std::string>* notes = nullptr);

}  // namespace ferry
