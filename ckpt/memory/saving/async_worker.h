// The threads of an AsyncSaver.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/saving/group_saver.h"
#include "ckpt/memory/saving/pending_errors.h"
#include "ckpt/memory/transfer/pieced_snapshot.h"
#include "ckpt/memory/transfer/staging_buffers.h"

namespace ferry {

/// One thread stages snapshots, one meets the other ranks and saves them.
class AsyncSaver::Worker {
 public:
  Worker(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
         std::shared_ptr<Group> group, AsyncSaverOptions options);
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void prepare(std::span<const ConstRegion> regions);
  Ticket save(Snapshot snapshot);
  void give_up(int64_t iteration, const Error& why);
  void check() { pending_->rethrow(); }
  bool finish(std::optional<std::chrono::milliseconds> within);
  void stop(StopMode mode) noexcept;
  bool is_stopped() const noexcept { return stopped_; }
  Status status();

 private:
  struct Job {
    Contribution contribution;
    std::shared_ptr<void> moment;  // of the caller's work
    std::shared_ptr<Ticket::State> ticket;
    std::unique_ptr<StagingBuffers::Slot> buffer;
    std::unique_ptr<PiecedSnapshot> pieces;  // where the buffer does not hold all
    bool is_reported = false;                // the ticket says why it fails
    bool is_ready = false;                   // to be saved; guarded by mutex_
  };

  Job job_of(Snapshot snapshot);
  Ticket hand_in(Job made);
  static void refuse(Job& job) noexcept;
  static void give_up(Job& job, const Error& why) noexcept;

  // Owned by the staging thread.
  void stage_jobs();
  void take_memory(uint64_t bytes) noexcept;
  void stage(Job& job) noexcept;
  void copy(Job& job);

  // Owned by the saving thread.
  void save_jobs();
  std::shared_ptr<Job> wait_for_job();
  void save_job(Job& job, const Round& round);
  void let_go(Job& job, const std::optional<Error>& failure) noexcept;
  void fail_all(const Error& why) noexcept;

  void give_up_with_the_group() noexcept;

  void end();

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Stager> stager_;
  const int threads_;  // of the engine
  StagingBuffers buffers_;
  const std::shared_ptr<PendingErrors> pending_ = std::make_shared<PendingErrors>();
  std::optional<GroupSaver> saver_;
  std::atomic<bool> stopped_{false}, cancelled_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);  // stop() is for signal handlers

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;      // the first is being saved
  std::deque<std::shared_ptr<Job>> to_stage_;  // those of them that are not staged yet
  std::vector<std::string> notes_;
  std::optional<int64_t> last_saved_;
  int64_t in_pieces_ = 0;
  std::optional<uint64_t> to_prepare_;  // bytes of staging memory
  bool ended_ = false;
  std::thread staging_, saving_;  // last: they use all the others
};

// What a ticket of an asynchronous save shares with its saver.

struct AsyncSaver::Ticket::State {
  explicit State(std::shared_ptr<PendingErrors> errors) : pending(std::move(errors)) {}

  /// The first time counts.
  void set_ready(std::optional<Error> why_not) noexcept {
    const std::lock_guard lock(mutex);
    if (is_ready) return;
    refusal = std::move(why_not);
    is_ready = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_ready; });
  }

  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [&] { return is_ready; });
  }

  std::shared_ptr<void> due() {
    const std::lock_guard lock(mutex);
    return due_moment;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<void> due_moment;  // null: not known yet
  bool is_ready = false;             // the regions are not needed any more
  std::optional<Error> refusal;      // why the snapshot is not taken
  const std::shared_ptr<PendingErrors> pending;
};

}  // namespace ferry
