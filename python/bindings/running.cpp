#include "python/bindings/running.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace ferry::python {
namespace {

namespace nb = nanobind;

// How long a signal may wait for Python's handler.
constexpr std::chrono::milliseconds kSignalInterval{50};

/// What the thread that works and the one that waits for it share.
class Watched {
 public:
  void report(const Progress& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    changed_.notify_one();
  }

  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
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

  const std::exception_ptr& error() const { return error_; }  // once it has finished

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
  std::thread worker([&] {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    watched.finish(std::move(error));
  });
  std::exception_ptr raised;  // by Python
  Watched::News news;
  while (!news.finished) {
    {
      const nb::gil_scoped_release release;
      news = watched.wait();
    }
    if (raised) continue;
    try {
      if (news.progress) progress(news.progress->bytes_done, news.progress->bytes_total);
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      raised = std::current_exception();
      cancel = true;
      if (on_cancel) on_cancel();
    }
  }
  worker.join();
  options.cancel = nullptr;
  options.progress = nullptr;
  if (raised) std::rethrow_exception(raised);
  if (watched.error()) std::rethrow_exception(watched.error());
}

}  // namespace ferry::python
