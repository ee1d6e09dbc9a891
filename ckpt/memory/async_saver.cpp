#include "ckpt/memory/async_saver.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/together.h"
#include "ckpt/memory/saving/group_saver.h"
#include "ckpt/memory/staging/staging_buffers.h"

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

// Made before it is needed: then there is no memory for one. Copies of an Error need none.
const Error kOutOfMemory(ErrorKind::exhausted, "out of memory");

// What `make` returns, unless it has no memory for that.
template <typename Make>
Error error_or_out_of_memory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

Error error_of(const std::exception& exception) noexcept {
  const auto* error = dynamic_cast<const Error*>(&exception);
  if (error) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception)) return kOutOfMemory;
  return error_or_out_of_memory([&] { return Error(ErrorKind::internal, exception.what()); });
}

// What went wrong and was not told yet. Told by the saver and by tickets that may outlive it.
class Untold {
 public:
  void add(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      errors_.push_back(error);
    } catch (const std::bad_alloc&) {
      ++without_words_;
    }
  }

  void tell() {
    std::vector<Error> errors;
    size_t more = 0;
    {
      const std::lock_guard lock(mutex_);
      errors = std::exchange(errors_, {});
      more = std::exchange(without_words_, 0);
    }
    if (errors.empty() && more == 0) return;
    if (errors.empty()) fail(ErrorKind::exhausted, "a save failed: out of memory");
    more += errors.size() - 1;
    if (more == 0) throw errors[0];
    fail(errors[0].kind(), "{} ({} more saves failed)", errors[0].what(), more);
  }

 private:
  std::mutex mutex_;
  std::vector<Error> errors_;
  size_t without_words_ = 0;
};

}  // namespace

struct AsyncSaver::Ticket::State {
  explicit State(std::shared_ptr<Untold> errors) : untold(std::move(errors)) {}

  void set_ready(std::optional<Error> why_not) noexcept {
    const std::lock_guard lock(mutex);
    refusal = std::move(why_not);
    is_ready = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_ready; });
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
  const std::shared_ptr<Untold> untold;
};

AsyncSaver::Ticket& AsyncSaver::Ticket::operator=(Ticket&& other) noexcept {
  if (state_) state_->wait();
  state_ = std::move(other.state_);
  return *this;
}

AsyncSaver::Ticket::~Ticket() {
  if (state_) state_->wait();
}

bool AsyncSaver::Ticket::is_ready() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->is_ready;
}

void AsyncSaver::Ticket::tell_due(std::shared_ptr<void> moment) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->due_moment = std::move(moment);
}

void AsyncSaver::Ticket::wait() {
  if (!state_) return;
  const std::shared_ptr<State> state = std::move(state_);
  state->wait();
  if (state->refusal) throw *state->refusal;
  state->untold->tell();
}

class AsyncSaver::Worker {
 public:
  Worker(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
         std::shared_ptr<Group> group, AsyncSaverOptions options)
      : group_(std::move(group)),
        stager_(options.stager ? std::move(options.stager)
                               : host_stager(options.save.engine.threads)),
        buffers_(stager_, options.most_in_flight, options.staging_bytes) {
    if (options.most_in_flight < 1) {
      fail(ErrorKind::invalid, "{} saves in flight", options.most_in_flight);
    }
    options.save.engine.cancel = &cancelled_;
    saver_.emplace(std::move(file_system), std::move(run_folder), *group_, std::move(options.save));
    const SignalsBlocked blocked;
    try {
      staging_ = std::thread([this] { stage_jobs(); });
      saving_ = std::thread([this] { save_jobs(); });
    } catch (const std::system_error& error) {
      end();
      fail(ErrorKind::exhausted, "no thread for saving: {}", error.what());
    } catch (...) {  // want of memory
      end();
      throw;
    }
  }

  ~Worker() { end(); }

  void prepare(std::span<const ConstRegion> regions) {
    const uint64_t bytes = staged_bytes(regions);
    const std::lock_guard lock(mutex_);
    to_prepare_ = bytes;
    changed_.notify_all();
  }

  Ticket save(Snapshot snapshot) {
    const int64_t iteration = snapshot.iteration;
    try {
      auto job = std::make_shared<Job>(job_of(std::move(snapshot)));
      const auto ticket = std::make_shared<Ticket::State>(untold_);
      job->ticket = ticket;
      if (!job->contribution.problem.empty()) refuse(*job);
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        jobs_.push_back(job);
        to_stage_.push_back(std::move(job));
      }
      changed_.notify_all();
      return Ticket(ticket);
    } catch (const std::bad_alloc&) {
      // The others would wait for this rank for ever.
      group_->abort(error_or_out_of_memory([&] {
        return Error(ErrorKind::exhausted,
                     fmt::format("iteration {} is not saved: out of memory", iteration));
      }));
      throw;
    }
  }

  void finish() {
    {
      std::unique_lock lock(mutex_);
      // What other ranks still bring is not waited for by one that takes no snapshot any more.
      if (stopped_) ended_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return jobs_.empty(); });
    }
    untold_->tell();
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
  struct Job {
    Contribution contribution;
    std::shared_ptr<void> moment;  // of the caller's work
    std::shared_ptr<Ticket::State> ticket;
    std::unique_ptr<StagingBuffers::Slot> buffer;
    bool is_told = false;   // the ticket says why it fails
    bool is_ready = false;  // to be saved; guarded by mutex_
  };

  // With what is wrong, if anything is: the other ranks wait for this one, and are to know.
  Job job_of(Snapshot snapshot) {
    Job job;
    job.contribution = contribution_of(snapshot);
    job.moment = stager_->now();
    if (stopped_) {
      job.contribution = failed_contribution(
          snapshot.iteration, Error(ErrorKind::cancelled,
                                    fmt::format("iteration {} is not saved: the saver was stopped",
                                                snapshot.iteration)));
      job.contribution.stopped = true;
    }
    return job;
  }

  static void refuse(Job& job) noexcept {
    const Contribution& own = job.contribution;
    job.is_told = true;
    job.ticket->set_ready(
        error_or_out_of_memory([&] { return Error(own.problem_kind, own.problem); }));
  }

  // Of the staging thread.
  void stage_jobs() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return to_prepare_ || !to_stage_.empty() || ended_; });
        if (to_prepare_) {
          const uint64_t bytes = *std::exchange(to_prepare_, std::nullopt);
          lock.unlock();
          take_memory(bytes);
          continue;
        }
        if (to_stage_.empty()) return;
        job = std::move(to_stage_.front());
        to_stage_.pop_front();
      }
      if (!job->is_told) stage(*job);
      const std::lock_guard lock(mutex_);
      job->is_ready = true;
      changed_.notify_all();
    }
  }

  void take_memory(uint64_t bytes) noexcept {
    try {
      buffers_.give_back(buffers_.take(bytes));
    } catch (const std::exception&) {
      // It is asked for again, and told of, when there is something to save.
    }
  }

  void stage(Job& job) noexcept {
    try {
      std::vector<ConstRegion>& regions = job.contribution.snapshot.tensors;
      job.buffer = buffers_.take(staged_bytes(regions));
      stager_->copy_beside(
          copies_into(job.buffer->memory.bytes, regions), job.moment,
          [&] { return job.ticket->due(); }, [&] { job.ticket->set_ready(std::nullopt); });
    } catch (const std::exception& error) {
      give_up(job, error_of(error));
    }
  }

  static void give_up(Job& job, const Error& why) noexcept {
    Contribution& own = job.contribution;
    try {
      own.problem = why.what();
      own.problem_kind = why.kind();
    } catch (const std::bad_alloc&) {
      own.problem = kOutOfMemory.what();  // short enough to need none
      own.problem_kind = kOutOfMemory.kind();
    }
    refuse(job);
  }

  // Of the saving thread.
  void save_jobs() {
    try {
      for (;;) {
        const std::shared_ptr<Job> job = wait_for_job();
        Contribution end;
        end.ended = true;
        Contribution& own = job ? job->contribution : end;
        own.stopped = own.stopped || (!job && stopped_);
        const Round round = saver_->agree(own);
        if (round.is_stopped) stopped_ = true;
        if (round.is_over) return;
        if (job && own.iteration == round.iteration) save_job(*job, round);
      }
    } catch (const std::exception& error) {  // the group cannot be used any more
      abort_with_current_exception(*group_);
      const Error why = error_of(error);
      fail_all(error_or_out_of_memory([&] {
        return Error(why.kind(), fmt::format("the ranks cannot meet any more: {}", why.what()));
      }));
    }
  }

  // The oldest; null once there are no more.
  std::shared_ptr<Job> wait_for_job() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() ? ended_ : jobs_.front()->is_ready; });
    return jobs_.empty() ? nullptr : jobs_.front();
  }

  void save_job(Job& job, const Round& round) {
    std::vector<std::string> notes;
    std::optional<Error> failure;
    try {
      round.check();
      notes = saver_->save(round, job.contribution.snapshot);
    } catch (const SharedError& error) {
      failure = Error(error.kind(),
                      fmt::format("saving iteration {}: {}", round.iteration, error.what()));
    }
    if (failure && !job.is_told) untold_->add(*failure);
    if (job.buffer) buffers_.give_back(std::move(job.buffer));
    const std::lock_guard lock(mutex_);
    if (!failure) {
      last_saved_ = round.iteration;
      notes_.insert(notes_.end(), notes.begin(), notes.end());
    }
    jobs_.pop_front();
    changed_.notify_all();
  }

  // What is in flight, and all that still comes; the caller is told in any case.
  void fail_all(const Error& why) noexcept {
    bool is_told = false;
    while (const std::shared_ptr<Job> job = wait_for_job()) {
      is_told = true;
      if (!job->is_told) untold_->add(why);
      if (job->buffer) buffers_.give_back(std::move(job->buffer));
      const std::lock_guard lock(mutex_);
      jobs_.pop_front();
      changed_.notify_all();
    }
    if (!is_told) untold_->add(why);
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    if (staging_.joinable()) staging_.join();
    if (saving_.joinable()) saving_.join();
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Stager> stager_;
  StagingBuffers buffers_;
  const std::shared_ptr<Untold> untold_ = std::make_shared<Untold>();
  std::optional<GroupSaver> saver_;
  std::atomic<bool> stopped_{false}, cancelled_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);  // stop() is for signal handlers

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;      // the first is being saved
  std::deque<std::shared_ptr<Job>> to_stage_;  // those of them that are not staged yet
  std::vector<std::string> notes_;
  std::optional<int64_t> last_saved_;
  std::optional<uint64_t> to_prepare_;  // bytes of staging memory
  bool ended_ = false;
  std::thread staging_, saving_;  // last: they use all the others
};

AsyncSaver::AsyncSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
                       std::shared_ptr<Group> group, AsyncSaverOptions options)
    : worker_(std::make_unique<Worker>(std::move(file_system), std::move(run_folder),
                                       std::move(group), std::move(options))) {}
AsyncSaver::~AsyncSaver() = default;

void AsyncSaver::prepare(std::span<const ConstRegion> regions) { worker_->prepare(regions); }
AsyncSaver::Ticket AsyncSaver::save(Snapshot snapshot) {
  return worker_->save(std::move(snapshot));
}
void AsyncSaver::finish() { worker_->finish(); }
void AsyncSaver::stop(StopMode mode) noexcept { worker_->stop(mode); }
bool AsyncSaver::is_stopped() const noexcept { return worker_->is_stopped(); }
AsyncSaver::Status AsyncSaver::status() { return worker_->status(); }

}  // namespace ferry
