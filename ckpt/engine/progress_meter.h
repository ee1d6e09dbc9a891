// Adds up what several threads have done and reports it now and then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

class ProgressMeter {
 public:
  /// `report` may be empty; it must outlive the meter.
  ProgressMeter(const std::function<void(const Progress&)>& report, uint64_t total)
      : report_(report), total_(total) {}

  /// Reports at most ten times a second, from one thread at a time.
  void add(uint64_t bytes) {
    const uint64_t done = done_ += bytes;
    if (!report_) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    report_({done, total_});
  }

  void finish() const {
    if (report_) report_({total_, total_});
  }

 private:
  const std::function<void(const Progress&)>& report_;
  uint64_t total_;
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace ferry
