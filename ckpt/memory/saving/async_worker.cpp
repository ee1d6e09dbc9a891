#include "ckpt/memory/saving/async_worker.h"

#include <new>
#include <system_error>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/signals_blocked.h"
#include "ckpt/base/threads.h"
#include "ckpt/group/group.h"

namespace ferry {
AsyncSaver::Worker::Worker(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
                           std::shared_ptr<Group> group, AsyncSaverOptions options)
    : group_(std::move(group)),
      stager_(options.stager ? std::move(options.stager)
                             : host_stager(options.save.engine.threads)),
      threads_(thread_count(options.save.engine.threads)),
      buffers_(stager_, options.most_in_flight, options.staging_bytes) {
  if (options.most_in_flight < 1) {
    fail(ErrorKind::invalid, "{} saves in flight", options.most_in_flight);
  }
  options.save.engine.cancel = &cancelled_;
  options.save.engine.progress = [this,
                                  report = options.save.engine.progress](const Progress& done) {
    if (report) report(done);
    give_up_with_the_group();
  };
  saver_.emplace(std::move(file_system), std::move(run_folder), *group_, std::move(options.save));
  const SignalsBlocked blocked;
  try {
    staging_ = std::thread([this] { stage_jobs(); });
    saving_ = std::thread([this] { save_jobs(); });
  } catch (const std::system_error& error) {
    end();
    fail(ErrorKind::exhausted, "no thread for saving: {}", error.what());
  } catch (...) {  // out of memory
    end();
    throw;
  }
}

void AsyncSaver::Worker::prepare(std::span<const ConstRegion> regions) {
  const uint64_t bytes = staged_bytes(regions);
  const std::lock_guard lock(mutex_);
  to_prepare_ = bytes;
  changed_.notify_all();
}

AsyncSaver::Ticket AsyncSaver::Worker::save(Snapshot snapshot) {
  const int64_t iteration = snapshot.iteration;
  try {
    return hand_in(job_of(std::move(snapshot)));
  } catch (const std::bad_alloc&) {
    // The others would wait for this rank for ever.
    group_->abort(error_or_out_of_memory([&] {
      return Error(ErrorKind::exhausted,
                   fmt::format("iteration {} is not saved: out of memory", iteration));
    }));
    throw;
  }
}

void AsyncSaver::Worker::give_up(int64_t iteration, const Error& why) {
  try {
    Job job;
    job.contribution = failed_contribution(iteration, why);
    (void)hand_in(std::move(job));
  } catch (const std::bad_alloc&) {
    group_->abort(why);
    throw;
  }
}

AsyncSaver::Ticket AsyncSaver::Worker::hand_in(Job made) {
  auto job = std::make_shared<Job>(std::move(made));
  const auto ticket = std::make_shared<Ticket::State>(pending_);
  job->ticket = ticket;
  if (!job->contribution.problem.empty()) refuse(*job);
  const std::lock_guard lock(mutex_);
  if (!ended_) {
    jobs_.push_back(job);
    to_stage_.push_back(std::move(job));
  }
  changed_.notify_all();
  return Ticket(ticket);
}

bool AsyncSaver::Worker::finish(std::optional<std::chrono::milliseconds> within) {
  {
    std::unique_lock lock(mutex_);
    // What other ranks still bring is not waited for by one that takes no snapshot any more.
    if (stopped_) ended_ = true;
    changed_.notify_all();
    const auto is_done = [&] { return jobs_.empty(); };
    if (!within) {
      changed_.wait(lock, is_done);
    } else if (!changed_.wait_for(lock, *within, is_done)) {
      return false;
    }
  }
  pending_->rethrow();
  return true;
}

// What the ranks cannot finish together any more is not written to its end, which may take long.
void AsyncSaver::Worker::give_up_with_the_group() noexcept {
  try {
    group_->check();
  } catch (const std::exception&) {
    cancelled_ = true;
  }
}

void AsyncSaver::Worker::stop(StopMode mode) noexcept {
  if (mode == StopMode::at_once) cancelled_ = true;
  stopped_ = true;
}

AsyncSaver::Status AsyncSaver::Worker::status() {
  const std::lock_guard lock(mutex_);
  return {static_cast<int>(jobs_.size()), buffers_.bytes(), in_pieces_, last_saved_,
          std::exchange(notes_, {})};
}

// With what is wrong, if anything is: the other ranks wait for this one, and are to know.
AsyncSaver::Worker::Job AsyncSaver::Worker::job_of(Snapshot snapshot) {
  const int64_t iteration = snapshot.iteration;
  Job job;
  job.contribution = contribution_of(std::move(snapshot));
  job.moment = stager_->now();
  if (stopped_) {
    job.contribution = failed_contribution(
        iteration,
        Error(ErrorKind::cancelled,
              fmt::format("iteration {} is not saved: the saver was stopped", iteration)));
    job.contribution.stopped = true;
  }
  return job;
}

void AsyncSaver::Worker::refuse(Job& job) noexcept {
  const Contribution& own = job.contribution;
  job.is_reported = true;
  job.ticket->set_ready(
      error_or_out_of_memory([&] { return Error(own.problem_kind, own.problem); }));
}

void AsyncSaver::Worker::give_up(Job& job, const Error& why) noexcept {
  Contribution& own = job.contribution;
  try {
    own.problem = why.what();
    own.problem_kind = why.kind();
  } catch (const std::bad_alloc&) {
    own.problem = out_of_memory().what();  // short enough to need none
    own.problem_kind = out_of_memory().kind();
  }
  refuse(job);
}

void AsyncSaver::Worker::stage_jobs() {
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
    if (!job->is_reported) stage(*job);
    const std::lock_guard lock(mutex_);
    job->is_ready = true;
    if (job->pieces) ++in_pieces_;
    changed_.notify_all();
  }
}

void AsyncSaver::Worker::take_memory(uint64_t bytes) noexcept {
  try {
    buffers_.release(buffers_.take(bytes));
  } catch (const std::exception&) {
    // It is allocated again, or its lack reported, when there is something to save.
  }
}

void AsyncSaver::Worker::stage(Job& job) noexcept {
  try {
    copy(job);
  } catch (const std::exception& error) {
    give_up(job, error_of(error));
  }
}

void AsyncSaver::Worker::copy(Job& job) {
  std::vector<ConstRegion>& regions = job.contribution.snapshot.tensors;
  const uint64_t bytes = staged_bytes(regions);
  job.buffer = buffers_.take(bytes);
  const std::span<std::byte> memory = job.buffer->memory.bytes;
  if (memory.size() < bytes) {
    job.pieces = std::make_unique<PiecedSnapshot>(stager_, job.moment, memory, regions, threads_,
                                                  [&] { job.ticket->set_ready(std::nullopt); });
    return;
  }
  stager_->copy_overlapped(
      copies_into(memory, regions), job.moment, [&] { return job.ticket->due(); },
      [&] { job.ticket->set_ready(std::nullopt); });
}

void AsyncSaver::Worker::save_jobs() {
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
      return Error(why.kind(), fmt::format("the ranks can no longer communicate: {}", why.what()));
    }));
  }
}

// The oldest; null once there are no more.
std::shared_ptr<AsyncSaver::Worker::Job> AsyncSaver::Worker::wait_for_job() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() ? ended_ : jobs_.front()->is_ready; });
  return jobs_.empty() ? nullptr : jobs_.front();
}

void AsyncSaver::Worker::save_job(Job& job, const Round& round) {
  std::vector<std::string> notes;
  std::optional<Error> failure;
  try {
    round.check();
    notes = saver_->save(round, job.contribution.snapshot, job.pieces.get());
  } catch (const SharedError& error) {
    failure =
        Error(error.kind(), fmt::format("saving iteration {}: {}", round.iteration, error.what()));
  }
  let_go(job, failure);
  const std::lock_guard lock(mutex_);
  if (!failure) {
    last_saved_ = round.iteration;
    notes_.insert(notes_.end(), notes.begin(), notes.end());
  }
  jobs_.pop_front();
  changed_.notify_all();
}

// Nothing reads its memory any more. Whoever waits for that gets the reason at once.
void AsyncSaver::Worker::let_go(Job& job, const std::optional<Error>& failure) noexcept {
  if (failure && !job.is_reported) pending_->add(*failure);
  if (job.pieces) job.ticket->set_ready(std::nullopt);
  job.pieces.reset();
  if (job.buffer) buffers_.release(std::move(job.buffer));
}

// What is in flight, and all that still comes; the caller gets the error in any case.
void AsyncSaver::Worker::fail_all(const Error& why) noexcept {
  bool is_reported = false;
  while (const std::shared_ptr<Job> job = wait_for_job()) {
    is_reported = true;
    let_go(*job, why);
    const std::lock_guard lock(mutex_);
    jobs_.pop_front();
    changed_.notify_all();
  }
  if (!is_reported) pending_->add(why);
}

void AsyncSaver::Worker::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  if (staging_.joinable()) staging_.join();
  if (saving_.joinable()) saving_.join();
}

}  // namespace ferry
