#include "ckpt/memory/async_saver.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/memory/group_save.h"
#include "ckpt/memory/staging_buffers.h"

namespace ferry {
namespace {

// While one lives, threads that are started take no signals: those are the caller's. What a thread
// itself causes stays: nobody else can take that.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t others;
    sigfillset(&others);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&others, own);
    pthread_sigmask(SIG_SETMASK, &others, &former_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_{};
};

struct Job {
  Contribution contribution;
  SnapshotPlanner planner;
  std::unique_ptr<StagingBuffers::Slot> buffer;
  bool is_told = false;  // save() threw why it fails
};

}  // namespace

class AsyncSaver::Worker {
 public:
  Worker(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
         std::shared_ptr<Group> group, AsyncSaverOptions options)
      : file_system_(std::move(file_system)),
        run_folder_(std::move(run_folder)),
        group_(std::move(group)),
        options_(std::move(options.save)),
        buffers_(options.most_in_flight, options.staging_bytes) {
    if (options.most_in_flight < 1) {
      fail(ErrorKind::invalid, "{} saves in flight", options.most_in_flight);
    }
    options_.engine.cancel = &cancelled_;
    const SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      fail(ErrorKind::exhausted, "no thread for saving: {}", error.what());
    }
  }

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void save(const Snapshot& snapshot) {
    Job job = take_snapshot(snapshot);
    const Contribution& own = job.contribution;
    const Error refused(own.problem_kind, own.problem);
    job.is_told = !own.problem.empty();
    const bool is_refused = job.is_told;
    std::unique_lock lock(mutex_);
    if (!ended_) jobs_.push_back(std::move(job));
    changed_.notify_all();
    if (is_refused) throw refused;
    throw_errors(lock);
  }

  void finish() {
    std::unique_lock lock(mutex_);
    // What other ranks still bring is not waited for by one that takes no snapshot any more.
    if (stopped_) ended_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return jobs_.empty(); });
    throw_errors(lock);
  }

  void stop(StopMode mode) noexcept {
    if (mode == StopMode::at_once) cancelled_ = true;
    stopped_ = true;
  }
  bool is_stopped() const noexcept { return stopped_; }

  Status status() {
    const std::lock_guard lock(mutex_);
    return {static_cast<int>(jobs_.size()), buffers_.bytes(), last_saved_,
            std::exchange(notes_, {})};
  }

 private:
  // With what went wrong, if anything did: the other ranks wait for this one, and are to know.
  Job take_snapshot(const Snapshot& snapshot) {
    Job job{contribution_of(snapshot), snapshot.planner, nullptr, false};
    if (stopped_) {
      job.contribution = failed_contribution(
          snapshot.iteration, Error(ErrorKind::cancelled,
                                    fmt::format("iteration {} is not saved: the saver was stopped",
                                                snapshot.iteration)));
      job.contribution.stopped = true;
    }
    if (!job.contribution.problem.empty()) return job;
    try {
      std::vector<ConstRegion>& regions = job.contribution.tensors;
      const uint64_t bytes = staged_bytes(regions);
      job.buffer = buffers_.take(bytes);
      const SignalsBlocked blocked;
      stage(regions, job.buffer->buffer.take(bytes), thread_count(options_.engine.threads));
    } catch (const Error& error) {
      job.contribution = failed_contribution(snapshot.iteration, error);
    } catch (const std::exception& error) {  // no memory, no thread
      job.contribution =
          failed_contribution(snapshot.iteration, Error(ErrorKind::exhausted, error.what()));
    }
    return job;
  }

  // Of the saver's thread.
  void run() {
    Contribution end;
    end.ended = true;
    try {
      for (;;) {
        Job* job = wait_for_job();
        end.stopped = stopped_;
        const Round round = meet(*group_, job ? job->contribution : end);
        if (round.is_stopped()) stopped_ = true;
        if (round.is_over()) return;
        if (job && job->contribution.iteration == round.iteration) save_job(*job, round);
      }
    } catch (const std::exception& error) {  // the group itself failed: it cannot be used any more
      fail_all(Error(ErrorKind::cancelled,
                     fmt::format("the ranks cannot meet any more: {}", error.what())));
    }
  }

  // The oldest; null once there are no more.
  Job* wait_for_job() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !jobs_.empty() || ended_; });
    return jobs_.empty() ? nullptr : &jobs_.front();
  }

  void save_job(Job& job, const Round& round) {
    std::vector<std::string> notes;
    std::optional<Error> failure;
    try {
      round.check();
      notes = save_round(file_system_, run_folder_, round, job.planner, *group_, options_);
    } catch (const Error& error) {
      failure = Error(error.kind(),
                      fmt::format("saving iteration {}: {}", round.iteration, error.what()));
    }
    if (job.buffer) buffers_.give_back(std::move(job.buffer));
    const std::lock_guard lock(mutex_);
    if (!failure) {
      last_saved_ = round.iteration;
      notes_.insert(notes_.end(), notes.begin(), notes.end());
    } else if (!job.is_told) {
      errors_.push_back(std::move(*failure));
    }
    jobs_.pop_front();
    changed_.notify_all();
  }

  // What is in flight, and all that still comes; the caller is told in any case.
  void fail_all(const Error& why) {
    std::unique_lock lock(mutex_);
    if (jobs_.empty()) errors_.push_back(why);
    for (;;) {
      for (Job& job : jobs_) {
        if (job.buffer) buffers_.give_back(std::move(job.buffer));
        if (!job.is_told) errors_.push_back(why);
      }
      jobs_.clear();
      changed_.notify_all();
      if (ended_) return;
      changed_.wait(lock, [&] { return !jobs_.empty() || ended_; });
    }
  }

  void throw_errors(const std::unique_lock<std::mutex>&) {
    if (errors_.empty()) return;
    const std::vector<Error> errors = std::exchange(errors_, {});
    if (errors.size() == 1) throw errors[0];
    fail(errors[0].kind(), "{} ({} more saves failed)", errors[0].what(), errors.size() - 1);
  }

  std::shared_ptr<const FileSystem> file_system_;
  std::string run_folder_;
  std::shared_ptr<Group> group_;
  SaveOptions options_;
  StagingBuffers buffers_;
  std::atomic<bool> stopped_{false}, cancelled_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);  // stop() is for signal handlers

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is being saved
  std::vector<Error> errors_;
  std::vector<std::string> notes_;
  std::optional<int64_t> last_saved_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses all the others
};

AsyncSaver::AsyncSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
                       std::shared_ptr<Group> group, AsyncSaverOptions options)
    : worker_(std::make_unique<Worker>(std::move(file_system), std::move(run_folder),
                                       std::move(group), std::move(options))) {}
AsyncSaver::~AsyncSaver() = default;

void AsyncSaver::save(const Snapshot& snapshot) { worker_->save(snapshot); }
void AsyncSaver::finish() { worker_->finish(); }
void AsyncSaver::stop(StopMode mode) noexcept { worker_->stop(mode); }
bool AsyncSaver::is_stopped() const noexcept { return worker_->is_stopped(); }
AsyncSaver::Status AsyncSaver::status() { return worker_->status(); }

}  // namespace ferry
