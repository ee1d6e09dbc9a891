// Frames of unknown length, one after another in files, made by several threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Threads take frames in their order. Where a frame begins is known when the one before it in its
/// file has ended: then it is written as it grows, until then it waits in memory, of which all
/// together use little more than a limit (the frame that must be first never waits, so that there
/// is always one that goes on).
class FrameQueue {
 public:
  /// One frame for each item, `order` being theirs by file and offset.
  FrameQueue(std::span<const Item> items, std::span<const uint32_t> order,
             std::span<WritableFile* const> files, uint64_t waiting_bytes);

  /// Bytes that wait, in pieces, so that none is ever moved to a larger place.
  using Pieces = std::vector<std::string>;

  /// A frame while one thread makes it.
  class Frame {
   public:
    Frame(FrameQueue& queue, size_t number) : queue_(queue), number_(number) {}

    /// Where its next bytes are put.
    std::string& buffer() noexcept { return buffer_; }
    /// Takes the buffer's bytes and leaves it empty. Waits where too many bytes do.
    /// Error(cancelled) after stop().
    void grown();
    /// Says that all bytes were taken.
    void finish();

   private:
    void hold();

    FrameQueue& queue_;
    size_t number_;
    std::string buffer_;
    Pieces held_;           // what waits
    uint64_t written_ = 0;  // before that
    uint64_t length_ = 0;
    DigestStream digest_;
  };

  /// Wakes all who wait, to end.
  void stop();

  /// For a finished queue.
  uint64_t offset(size_t number) const { return *places_[number].offset; }
  uint64_t length(size_t number) const { return places_[number].length; }
  const Digest& digest(size_t number) const { return places_[number].digest; }

 private:
  struct Place {
    uint32_t file = 0;
    bool ends_file = false;
    std::optional<uint64_t> offset;
    uint64_t length = 0;
    Digest digest;
  };

  // Bytes that waited, to `at`; returns how many. Gives up the lock meanwhile.
  uint64_t write(std::unique_lock<std::mutex>& lock, size_t number, uint64_t at, Pieces held);
  // Completes a frame: gives the next ones their places, and writes those that wait for that.
  void place_next(std::unique_lock<std::mutex>& lock, size_t number);

  std::span<WritableFile* const> files_;
  uint64_t waiting_limit_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Place> places_;
  std::map<size_t, Pieces> finished_;  // frames whose offset is not known yet
  uint64_t waiting_bytes_ = 0;
  bool stopped_ = false;
};

}  // namespace ferry
