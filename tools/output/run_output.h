// Writes what was planned: into a run folder, as a new iteration, or as a folder of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/checks/vouchers.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/read_mark.h"
#include "tools/terminal/written.h"

namespace ferry::tool {

struct RunOutput {
  std::string run_folder;            // may be missing; its parent must exist
  std::optional<int64_t> iteration;  // nothing: `release`
  bool overwrite = false;            // replaces that iteration

  std::string folder() const;  // of the iteration: "runs/small/iter_0000005"
};

/// invalid when the iteration stands in the way (see check_target).
void check_run_output(const FileSystem& file_system, const RunOutput& output,
                      const std::string& source);

struct WriteOptions {
  EngineOptions engine;
  VoucherOptions vouchers;
  const ReadMark* mark = nullptr;  // of the source: checked before anything relies on what was read
  std::optional<int> zstd_level;   // compresses the items of the plan; it was planned for that
  std::shared_ptr<Group> group = lone_group();  // all of it write; compressing is rank 0's alone
};

/// Makes a plan ready to be written so: its items tile its files where there is to be a manifest.
/// Then it is checked.
void prepare(PlannedOutput& planned, const VoucherOptions& vouchers);

/// Runs a prepared plan into a staged iteration, commits it and moves the tracker. Returns what is
/// worth telling; where it compressed, `planned` then has the sizes and files that were written. On
/// any error, or a signal (cancelled), the run folder is as it was.
std::vector<std::string> write_iteration(std::shared_ptr<const FileSystem> file_system,
                                         const RunOutput& output, PlannedOutput& planned,
                                         const WriteOptions& options);

/// The same for a checkpoint that is a folder of its own: `folder` itself appears, or is replaced.
std::vector<std::string> write_folder(std::shared_ptr<const FileSystem> file_system,
                                      const std::string& folder, bool overwrite,
                                      PlannedOutput& planned, const WriteOptions& options);

/// True when there is a checkpoint in `folder`, finished or not: what --overwrite may replace.
bool holds_checkpoint(const FileSystem& file_system, const std::string& folder);

inline constexpr const char* kSizesBeforeCompression = "sizes are those before compression";

/// The files of a planned folder, those of the plan first. Where the plan is to be compressed the
/// sizes are right once it was.
std::vector<std::pair<std::string, uint64_t>> files_of(const PlannedOutput& planned);

}  // namespace ferry::tool
