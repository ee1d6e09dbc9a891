// The runs below a folder, and how they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

/// A job of the queue: squeue's.
struct QueuedJob {
  std::string id, state, name, folder;
};

/// This user's jobs; nothing where there is no squeue, or it does not answer.
std::optional<std::vector<QueuedJob>> queued_jobs();
/// Lines of "ID|STATE|NAME|FOLDER".
std::vector<QueuedJob> parse_jobs(std::string_view text);

struct FoundRun {
  std::string name;   // its folder, below the one that was searched
  std::string paths;  // as read_run_figures() takes them
};

/// Run folders, and folders with logs. Of an experiment folder of ferry launch, its checkpoints/
/// and logs/ are one run. Links are not followed, iterations not entered. Folders below it that
/// cannot be read are added to `unreadable`, with the reason; the folder itself must be readable.
std::vector<FoundRun> find_runs(const FileSystem& files, const std::string& folder,
                                std::vector<std::string>& unreadable);

struct RunStatus {
  std::string name, paths;
  std::string state;  // finished, running, queued, active, stopped, ended
  int64_t iteration = 0, planned = 0;
  std::optional<double> loss;     // of the last iteration that has one; may be NaN or infinite
  int64_t losses_not_finite = 0;  // iterations
  std::optional<double> tokens_per_second, teraflops;
  std::optional<int64_t> last_good;  // the last iteration that is whole on disk
  std::string job, why;              // of the queue; of the last exit
};

/// Nothing where the folder holds no run. `now`: seconds since 1970.
std::optional<RunStatus> state_of_run(const FileSystem& files, const FoundRun& run,
                                      const std::vector<QueuedJob>& jobs, int64_t now);

}  // namespace ferry::tool
