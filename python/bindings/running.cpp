#include "python/bindings/running.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// How long a signal may wait for Python's handler.
constexpr std::chrono::milliseconds kSignalInterval{50};

/// What the thread that works and the one that waits for it share.
class Watched {
 public:
  void work(const std::function<void()>& function) noexcept {
    std::exception_ptr error;
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
    changed_.notify_one();
  }

  void report(const Progress& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    changed_.notify_one();
  }

  struct News {
    std::optional<Progress> progress;
    bool finished = false;
  };

  News wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSignalInterval, [&] { return finished_ || progress_; });
    News news{progress_, finished_};
    progress_.reset();
    return news;
  }

  /// Once it has finished.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Progress> progress_;
  bool finished_ = false;
  std::exception_ptr error_;
};

}  // namespace

void run_interruptibly(nb::handle progress, EngineOptions& options,
                       const std::function<void()>& work, const std::function<void()>& on_cancel) {
  Watched watched;
  std::atomic<bool> cancel = false;
  options.cancel = &cancel;
  if (!progress.is_none()) {
    options.progress = [&](const Progress& done) { watched.report(done); };
  }
  std::thread worker([&] { watched.work(work); });
  const auto cancel_once = [&] {
    if (!cancel.exchange(true) && on_cancel) on_cancel();
  };
  std::exception_ptr raised;  // by Python
  Watched::News news;
  while (!news.finished) {
    {
      const WithoutGil without;
      news = watched.wait();
      // No way leads back to Python: the work ends first, and uses this function's variables.
      while (WithoutGil::is_over() && !news.finished) {
        cancel_once();
        news = watched.wait();
      }
    }
    if (raised) continue;
    try {
      if (news.progress) progress(news.progress->bytes_done, news.progress->bytes_total);
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      raised = std::current_exception();
      cancel_once();
    }
  }
  worker.join();
  options.cancel = nullptr;
  options.progress = nullptr;
  if (raised) std::rethrow_exception(raised);
  watched.rethrow();
}

std::function<void()> abort_of(std::shared_ptr<Group> group) {
  if (group->size() == 1) return {};
  return [group = std::move(group)] { group->abort(Error(ErrorKind::cancelled, "interrupted")); };
}

void run_abandonably(std::function<void()> work) {
  const auto watched = std::make_shared<Watched>();
  std::thread([watched, alone = std::make_shared<LeftAlone>(), work = std::move(work)]() mutable {
    watched->work(work);
    work = nullptr;
  }).detach();
  bool finished = false;
  while (!finished) {
    {
      const WithoutGil without;
      finished = watched->wait().finished;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  watched->rethrow();
}

}  // namespace ferry::python
