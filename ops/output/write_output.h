// Writes what was planned: into a run folder, as an iteration, or as a folder of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/io/file_system.h"
#include "ops/write_options.h"

namespace ferry {

enum class OutputKind {
  iteration,          // of a run folder, whose tracker moves
  checkpoint_folder,  // a checkpoint that is a folder of its own
  model_folder,       // a Hugging Face model or plain safetensors
};

struct Output {
  OutputKind kind = OutputKind::iteration;
  std::string path;                  // the run folder, which may be missing, or the folder itself
  std::optional<int64_t> iteration;  // nothing: `release`

  std::string folder() const;  // that will hold the files: "runs/small/iter_0000005"
};

/// Checks the target before any work. Throws as StagedFolder::check_target(), and invalid when the
/// output would replace `source`, something of another kind (a mistyped name must not cost a home
/// directory), or other files next to what it may replace; when a checkpoint would be inside
/// `source`, or an iteration in what is not a run folder.
void check_output(const FileSystem& file_system, const Output& output, const std::string& source,
                  bool overwrite);

/// Makes a plan ready to be written so: its items tile its files where there is to be a manifest.
/// Then it is checked.
void prepare(PlannedOutput& planned, const IntegrityOptions& integrity);

/// Runs a prepared plan into a staged folder, and commits it once its source is sure to have stayed
/// as it was. A dry run only reports what it would write, with sizes before compression. Adds to
/// the plan's warnings. On any error, cancellation included, an existing target stays as it was.
WrittenFiles write_output(std::shared_ptr<const FileSystem> file_system, const Output& output,
                          PlannedOutput& planned, const WriteOptions& options);

/// Error(cancelled) when the caller has asked for it.
void check_cancelled(const WriteOptions& options);

/// What an operation is going to write.
struct Work {
  Output output;
  PlannedOutput planned;
};

/// The steps of every operation that writes: all ranks plan and check the plan, which fails on all
/// of them or on none, then the files are written. Returns what was written; `warnings` become
/// those of the plan.
WrittenFiles carry_out(
    const WriteOptions& options,
    const std::function<Work(const std::shared_ptr<const FileSystem>& file_system)>& plan,
    std::vector<std::string>& warnings);

}  // namespace ferry
