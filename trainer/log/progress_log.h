// progress.txt of a run folder: when a run's jobs started and what they saved.
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

/// Start of the jobs with this number of ranks.
struct ProgressStart {
  int64_t seconds = 0;    // since the epoch, local time as written
  double operations = 0;  // of the checkpoint at that time
};

/// The first job since the number of ranks last changed; empty if there is none. Ignores
/// unrecognized lines.
std::optional<ProgressStart> read_progress(std::string_view text, int64_t world_size);

struct ProgressSave {
  int64_t iteration = 0;
  double job_teraflops = 0, cumulative_teraflops = 0;  // per second and rank
  double operations = 0;
  int64_t tokens = 0;
};

// Texts of lines.
inline constexpr std::string_view kJobStarted = "Starting job";
/// `pending`: an asynchronous save that has started.
std::string saved_message(const ProgressSave& save, bool pending);
/// An asynchronous save is on disk.
std::string committed_message(int64_t iteration);

/// A line, with its newline. `job`: Slurm's, or empty.
std::string progress_line(int64_t seconds, const std::string& job, int64_t world_size,
                          std::string_view message);

/// Used by rank 0. Also reads the start of the file: successive jobs append to it.
class ProgressLog {
 public:
  /// For a run folder, which is created if missing.
  ProgressLog(const FileSystem& files, const std::string& folder, std::string job,
              int64_t world_size);

  void append(std::string_view message) const;
  /// Fills in the cumulative throughput and appends a line.
  void append_save(ProgressSave save, bool pending) const;

 private:
  const FileSystem& files_;
  std::string path_, job_;
  int64_t world_size_;
};

}  // namespace ferry
