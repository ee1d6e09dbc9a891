// What a ticket of an asynchronous save shares with its saver.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/saving/pending_errors.h"

namespace ferry {

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
