// Reads batches before they are asked for, beside what the caller computes.
#pragma once

#include <cstdint>
#include <functional>
#include <future>

#include "trainer/data/dataset.h"

namespace ferry {

/// Used by one thread; each read has a thread of its own, one at a time.
class BatchAhead {
 public:
  /// A micro-batch by its number in the step that begins after `consumed` samples.
  struct Place {
    int64_t consumed = 0, number = 0;
    bool operator==(const Place&) const = default;
  };
  using Read = std::function<void(const Place& place, Batch& batch)>;

  explicit BatchAhead(Read read) : read_(std::move(read)) {}
  ~BatchAhead() { drop(); }
  BatchAhead(const BatchAhead&) = delete;
  BatchAhead& operator=(const BatchAhead&) = delete;

  /// `batch` becomes that of `place`, and that of `next` is begun. Throws what reading throws of
  /// `place`; of `next`, when it is asked for.
  void take(const Place& place, const Place& next, Batch& batch);

 private:
  void drop() noexcept;

  Read read_;
  std::future<void> reading_;
  Place place_;  // of what is being read
  Batch batch_;
};

}  // namespace ferry
