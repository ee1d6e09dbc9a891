// Which bytes of an item are written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

namespace ferry {

/// A set of bytes, kept as few runs: adjacent writes become one. Safe from several threads.
class WrittenRuns {
 public:
  void add(uint64_t begin, uint64_t end) {
    const std::lock_guard lock(mutex_);
    auto after = runs_.upper_bound(begin);
    if (after != runs_.begin() && std::prev(after)->second >= begin) {
      --after;
      begin = after->first;
    }
    while (after != runs_.end() && after->first <= end) {
      end = std::max(end, after->second);
      after = runs_.erase(after);
    }
    runs_.emplace_hint(after, begin, end);
  }

  /// The end of the bytes that are written from `position` on. Forgets what is before.
  uint64_t end_from(uint64_t position) {
    const std::lock_guard lock(mutex_);
    while (!runs_.empty() && runs_.begin()->second <= position) runs_.erase(runs_.begin());
    if (runs_.empty() || runs_.begin()->first > position) return position;
    return runs_.begin()->second;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> runs_;  // begin -> end; apart from one another
};

}  // namespace ferry
