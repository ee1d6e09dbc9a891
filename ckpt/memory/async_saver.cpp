#include "ckpt/memory/async_saver.h"

#include <utility>

#include "ckpt/memory/saving/async_worker.h"

namespace ferry {

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

bool AsyncSaver::Ticket::is_ready_within(std::chrono::milliseconds time) const {
  return !state_ || state_->wait_for(time);
}

void AsyncSaver::Ticket::set_due(std::shared_ptr<void> moment) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->due_moment = std::move(moment);
}

void AsyncSaver::Ticket::wait() {
  if (!state_) return;
  const std::shared_ptr<State> state = std::move(state_);
  state->wait();
  if (state->refusal) throw *state->refusal;
  state->pending->rethrow();
}

AsyncSaver::AsyncSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
                       std::shared_ptr<Group> group, AsyncSaverOptions options)
    : worker_(std::make_unique<Worker>(std::move(file_system), std::move(run_folder),
                                       std::move(group), std::move(options))) {}
AsyncSaver::~AsyncSaver() = default;

void AsyncSaver::prepare(std::span<const ConstRegion> regions) { worker_->prepare(regions); }
AsyncSaver::Ticket AsyncSaver::save(Snapshot snapshot) {
  return worker_->save(std::move(snapshot));
}
void AsyncSaver::give_up(int64_t iteration, const Error& why) {
  worker_->give_up(iteration, why);
}
void AsyncSaver::check() { worker_->check(); }
void AsyncSaver::finish() { worker_->finish(std::nullopt); }
bool AsyncSaver::finish_within(std::chrono::milliseconds time) { return worker_->finish(time); }
void AsyncSaver::stop(StopMode mode) noexcept { worker_->stop(mode); }
bool AsyncSaver::is_stopped() const noexcept { return worker_->is_stopped(); }
AsyncSaver::Status AsyncSaver::status() { return worker_->status(); }

}  // namespace ferry
