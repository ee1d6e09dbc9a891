// progress.txt of a run folder: when jobs started and what they saved, over all jobs of a run.
//
// Source: Megatron-LM megatron/training/utils/log_utils.py, training.py
// (compute_throughputs_and_append_to_progress_log, get_start_time_from_progress_log).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Where the jobs of this many ranks began.
struct ProgressStart {
  int64_t seconds = 0;    // since 1970, local time as it was written
  double operations = 0;  // that the checkpoint had then
};

/// The first job since the number of ranks last changed; nothing when there is none. Lines that are
/// no such lines are passed over.
std::optional<ProgressStart> read_progress(std::string_view text, int64_t world_size);

struct ProgressSave {
  int64_t iteration = 0;
  double job_teraflops = 0, cumulative_teraflops = 0;  // a second and rank
  double operations = 0;
  int64_t tokens = 0;
};

// What lines say.
inline constexpr std::string_view kJobStarted = "Starting job";
/// `pending`: an asynchronous save that has begun.
std::string saved_message(const ProgressSave& save, bool pending);
/// When such a save is on disk.
std::string committed_message(int64_t iteration);

/// A line, with its newline. `job`: Slurm's, or empty.
std::string progress_line(int64_t seconds, const std::string& job, int64_t world_size,
                          std::string_view message);

/// By rank 0. Reads the file's start as well as writing its end: two jobs write in turn.
class ProgressLog {
 public:
  /// Of a run folder, which is made when it is missing.
  ProgressLog(const FileSystem& files, const std::string& folder, std::string job,
              int64_t world_size);

  void append(std::string_view message) const;
  /// Fills in the cumulative figure, and appends.
  void append_save(ProgressSave save, bool pending) const;

 private:
  const FileSystem& files_;
  std::string path_, job_;
  int64_t world_size_;
};

}  // namespace ferry
