// The folder of a Megatron-LM run: iteration folders and the tracker that names the latest.
//
//   latest_checkpointed_iteration.txt   a decimal number, or the word "release"
//   iter_0000100/ ...                   one checkpoint each ("iter_%07d")
//   release/                            a converted or published checkpoint without iteration
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name, read_metadata).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

inline constexpr std::string_view kTrackerName = "latest_checkpointed_iteration.txt";
inline constexpr std::string_view kReleaseName = "release";

/// The name of an iteration's folder: "iter_0000005".
std::string iteration_folder_name(int64_t iteration);

/// The iteration that a folder name stands for; nothing when it is not an iteration folder.
std::optional<int64_t> iteration_of(std::string_view folder_name);

struct IterationFolder {
  using Look = std::function<std::string()>;
  IterationFolder(std::string folder_name, std::optional<int64_t> number, Look look_for_end)
      : name(std::move(folder_name)), iteration(number), look(std::move(look_for_end)) {}

  /// "iter_0000005" or "release"; another name only for one whose replacement was interrupted
  /// between two renames, until a writer puts it back under its own.
  std::string name;
  std::optional<int64_t> iteration;  // nothing: release
  Look look;                         // gives what unfinished() says

  /// Why it cannot be loaded ("no .metadata"); empty: complete. Looked up when it is first asked
  /// for: a run has many iterations, of which few matter. Errors as FileSystem.
  const std::string& unfinished() const {
    if (!known_) known_ = look();
    return *known_;
  }
  bool complete() const { return unfinished().empty(); }

 private:
  mutable std::optional<std::string> known_;
};

struct Tracker {
  enum class State { missing, unreadable /* neither a number nor "release" */, iteration, release };
  State state = State::missing;
  int64_t iteration = 0;  // when state is iteration
  std::string content;    // as found, at most 80 bytes, printable
};

struct RunFolder {
  std::string path;
  Tracker tracker;
  std::vector<IterationFolder> iterations;  // rising; release last

  const IterationFolder* find(int64_t iteration) const;  // null when absent
  const IterationFolder* find_release() const;
  /// The complete one with the highest number, else a complete release; null when there is none.
  const IterationFolder* latest() const;
};

/// Why the tracker cannot be followed ("names iteration 15, which is not there"); empty: it can, or
/// there is none.
std::string problem_of_tracker(const RunFolder& run);

/// True when `path` holds a tracker, a folder named like an iteration or a complete release, and is
/// no checkpoint itself.
bool is_run_folder(const FileSystem& file_system, const std::string& path);

/// Reads a run folder: the tracker and the names. `file_system` must outlive the result, which
/// reads an iteration when it is asked whether that is complete: names, and the `.metadata` of one
/// with neither metadata.json nor ferry's manifest.
RunFolder read_run_folder(const FileSystem& file_system, const std::string& path);

/// The tracker's meaning: surrounding white space is ignored, as Megatron-LM does.
Tracker parse_tracker(std::string_view content);

/// The iteration to open: the one asked for ("100", "iter_0000100", "release"), else the tracker's,
/// else the only complete one (then `note` says so). not_found with the iterations that are there
/// and what to type, when it is missing, unfinished, or the tracker is missing, garbage or
/// dangling; invalid when `requested` is not an iteration. A tracker older than a complete
/// iteration is reported in `note`.
const IterationFolder& choose_iteration(const RunFolder& run, std::string_view requested,
                                        std::string* note);

}  // namespace ferry
