// The names of NeMo 2's checkpoints, the markers next to them, and which one a run goes on from.
//
// Source: NeMo 2 lightning/pytorch/callbacks/model_checkpoint.py, lightning/resume.py,
// lightning/ckpt_utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::mnist {

inline constexpr std::string_view kLast = "-last", kUnfinished = "-unfinished";

/// "example--reduced_train_loss=0.0523-epoch=0-consumed_samples=3200.0".
std::string checkpoint_name(const std::string& run, const std::string& monitor, double value,
                            int64_t epoch, int64_t consumed_samples);

/// The value after "monitor=" in a name; nothing where there is none.
std::optional<double> value_in_name(std::string_view name, std::string_view monitor);

/// The marker of a folder that is being written or removed: it is next to it, under the name
/// without ".ckpt" and "-EMA".
std::string marker_of(const std::string& path);

/// Folders in `folder` that are checkpoints by their files, without markers, sorted.
std::vector<std::string> finished_checkpoints(const FileSystem& files, const std::string& folder);

/// Removes what is marked as unfinished, and the marks, before a run writes here. Returns the names
/// of what was removed.
std::vector<std::string> remove_unfinished(const FileSystem& files, const std::string& folder);

struct ResumeOptions {
  std::string from_path = {};  // goes first; empty: none
  bool if_exists = true;
  bool ignore_no_checkpoint = true;  // a run without one begins anew
  bool past_end = false;
};

/// The checkpoint that a run in `folder` goes on from; nothing: it begins anew. One that ends in
/// "end" says that the run is over (invalid, unless past_end); else one that ends in "-last", of
/// several the newest. not_found where the only one is unfinished, or where there is none and that
/// is not to be ignored.
std::optional<std::string> find_resume(const FileSystem& files, const std::string& folder,
                                       const ResumeOptions& options);

}  // namespace ferry::mnist
