// Saves memory while the caller goes on: a snapshot is copied aside, and threads of the saver
// write it.
//
//   AsyncSaver saver(posix_file_system(), "runs/a", lone_group());
//   AsyncSaver::Ticket ticket;
//   for (...) {
//     forward_and_backward();
//     ticket.wait();  // now the memory may change again
//     update();
//     if (time_to_save) ticket = saver.save(snapshot);  // returns at once
//     if (saver.is_stopped()) break;
//   }
//   ticket.wait();
//   saver.finish();  // all is on disk, or this throws why not
//
// What a save is, and what is in the run folder at which moment, see save.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/memory/region.h"
#include "ckpt/memory/save.h"

namespace ferry {

struct AsyncSaverOptions {
  SaveOptions save = {};  // `save.engine.cancel` is the saver's own
  /// Snapshots that are staged or being written; at least 1. One more waits, and its ticket with
  /// it, until the first is on disk. Each has a buffer as large as the rank's regions; buffers are
  /// used again.
  int most_in_flight = 1;
  /// Most bytes of all buffers of this rank, at least 1. A snapshot that does not fit waits until
  /// others are written. One that would not fit alone, or that there is not as much memory for, is
  /// saved in pieces: what has room is copied aside, and the rest passes through a part of it while
  /// the other ranks bring theirs and all write. Its ticket waits for that; the files are the same.
  uint64_t staging_bytes = UINT64_MAX;
  /// How memory is copied aside; null: host_stager() with the engine's threads.
  std::shared_ptr<Stager> stager = {};
};

enum class StopMode : uint8_t {
  after_writes,  // no snapshot is taken any more; those that are staged still get to disk
  at_once,       // those that are staged are given up, too, and what is half written is removed
};

/// One of each rank. All ranks take snapshots of the same iterations in the same order; their
/// threads meet in the group, which nobody else uses meanwhile.
///
/// save(), finish(), status() and tickets belong to one thread of the caller. stop() may be called
/// from anywhere, a signal handler included; no handler is installed here, and the saver's own
/// threads take no signals.
///
/// stop() concerns one rank. The others learn of it when they next communicate with it: the save
/// that it takes no part in fails on them as cancelled, and is_stopped() is true there, too. Ranks
/// whose steps wait for each other have to agree at which step they leave the loop, as for any
/// other reason.
class AsyncSaver {
 public:
  AsyncSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
             std::shared_ptr<Group> group, AsyncSaverOptions options = {});
  /// Waits until what is in flight is written, or given up, and all ranks' savers have ended.
  /// Errors that finish() did not throw are lost. A rank that skips finish() and ends while the
  /// others still save makes their saves fail.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  /// One snapshot: until wait() returns, its regions and their memory must stay as they are. May
  /// outlive the saver. The destructor waits and swallows errors.
  class Ticket {
   public:
    Ticket() = default;  // waits for nothing
    Ticket(Ticket&&) noexcept = default;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

    /// Before wait(): announces that the memory will change at `moment` (Stager::now()); copies
    /// that are still pending are then given priority.
    void set_due(std::shared_ptr<void> moment);
    /// True when wait() would return at once.
    bool is_ready() const;
    /// The same, within `time`: for callers that must not wait without interruption.
    bool is_ready_within(std::chrono::milliseconds time) const;
    /// Returns when the regions have been copied, or will not be. Then throws, once: why this
    /// snapshot is not taken (invalid for regions that are none, exhausted when there is no memory
    /// for staging, cancelled after stop()): then this save fails on all ranks; else the error of
    /// an earlier save, if there was one, of which all ranks learn alike, and this snapshot is on
    /// its way all the same; or of this one, where it has failed that soon.
    void wait();

   private:
    friend class AsyncSaver;
    struct State;
    explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  /// Allocates staging memory for snapshots of such regions while the caller works, so that the
  /// first save() need not wait for it. Where there is none, save() reports it.
  void prepare(std::span<const ConstRegion> regions);

  /// Begins to take a snapshot, and returns at once, whatever its size.
  [[nodiscard]] Ticket save(Snapshot snapshot);

  /// In place of save(), for a rank that has nothing to give: the save of this iteration fails on
  /// all ranks, with that error.
  void give_up(int64_t iteration, const Error& why);

  /// Throws the error of a failed save that was not thrown yet, and waits for nothing.
  void check();

  /// Returns when nothing is in flight. Throws the error of a save that failed since the last call
  /// that threw; when several did, of the first, and says how many more. After stop() it returns
  /// too, after all of it is written, or soon, with cancelled for what was given up: then this rank
  /// saves no more, and the others need not wait for it.
  void finish();
  /// The same, if nothing is in flight within `time`; else false, and finish() has to be called
  /// again.
  bool finish_within(std::chrono::milliseconds time);

  /// For a handler of SIGTERM. Async-signal-safe.
  void stop(StopMode mode) noexcept;
  bool is_stopped() const noexcept;

  struct Status {
    int in_flight = 0;
    uint64_t staging_bytes = 0;         // of all buffers, used or not
    int64_t in_pieces = 0;              // snapshots so far that were larger than theirs
    std::optional<int64_t> last_saved;  // iteration that was committed last
    std::vector<std::string> notes;     // warnings of rank 0; each is given once
  };
  Status status();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace ferry
