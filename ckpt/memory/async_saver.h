// Saves memory while the caller goes on: a snapshot is copied aside, and a thread of the saver
// writes it.
//
//   AsyncSaver saver(posix_file_system(), "runs/a", lone_group());
//   for (...) {
//     train();
//     if (time_to_save) saver.save(snapshot);  // returns when the memory may change again
//     if (saver.is_stopped()) break;
//   }
//   saver.finish();  // all is on disk, or this throws why not
//
// What a save is, and what stands in the run folder at which moment, save.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/memory/save.h"

namespace ferry {

struct AsyncSaverOptions {
  SaveOptions save;  // `save.engine.cancel` is the saver's own
  /// Snapshots that are staged or being written; at least 1. One more waits in save() until the
  /// first is on disk. Each has a buffer as large as the rank's regions; buffers are used again.
  int most_in_flight = 1;
  /// Most bytes of all buffers of this rank. A snapshot that does not fit waits until others are
  /// written; one that would not fit alone is refused (exhausted).
  uint64_t staging_bytes = UINT64_MAX;
};

enum class StopMode : uint8_t {
  after_writes,  // no snapshot is taken any more; those that are staged still get to disk
  at_once,       // those that are staged are given up, too, and what is half written is removed
};

/// One of each rank. All ranks take snapshots of the same iterations in the same order; their
/// threads meet in the group, which nobody else uses meanwhile.
///
/// save(), finish() and status() belong to one thread of the caller. stop() may be called from
/// anywhere, a signal handler included; no handler is installed here, and the saver's own threads
/// take no signals.
///
/// stop() tells one rank. The others learn of it when they next meet it: the save that it takes no
/// part in fails on them as cancelled, and is_stopped() is true there, too. Ranks whose steps wait
/// for each other have to agree at which step they leave the loop, as for any other reason.
class AsyncSaver {
 public:
  AsyncSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
             std::shared_ptr<Group> group, AsyncSaverOptions options = {});
  /// Waits until what is in flight is written, or given up, and all ranks' savers have ended.
  /// Errors that finish() did not tell are lost. A rank that skips finish() and ends while the
  /// others still save makes their saves fail.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  /// Takes a snapshot: when it returns, the regions have been copied and may change. Waits while
  /// too many are in flight. Then throws the error of an earlier save, if there was one, of which
  /// all ranks learn alike: this snapshot is on its way all the same. cancelled, and no snapshot
  /// taken, after stop(); invalid for regions that are none, exhausted when staging cannot hold
  /// them: then this save fails on all ranks.
  void save(const Snapshot& snapshot);

  /// Returns when nothing is in flight. Throws the error of a save that failed since the last call
  /// that threw; when several did, of the first, and says how many more. After stop() it returns
  /// too, after all of it is written, or soon, with cancelled for what was given up: then this rank
  /// saves no more, and the others need not wait for it.
  void finish();

  /// For a handler of SIGTERM. Async-signal-safe.
  void stop(StopMode mode) noexcept;
  bool is_stopped() const noexcept;

  struct Status {
    int in_flight = 0;
    uint64_t staging_bytes = 0;         // of all buffers, used or not
    std::optional<int64_t> last_saved;  // iteration that was committed last
    std::vector<std::string> notes;     // of rank 0, worth telling; each is given once
  };
  Status status();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace ferry
