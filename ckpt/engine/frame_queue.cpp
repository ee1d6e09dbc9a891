#include "ckpt/engine/frame_queue.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kPieceBytes = 256 << 10;

}  // namespace

FrameQueue::FrameQueue(std::span<const Item> items, std::span<const uint32_t> order,
                       std::span<WritableFile* const> files, uint64_t waiting_bytes)
    : files_(files), waiting_limit_(waiting_bytes), places_(order.size()) {
  for (size_t i = 0; i < order.size(); ++i) {
    places_[i].file = items[order[i]].file;
    const bool begins_file = i == 0 || places_[i - 1].file != places_[i].file;
    if (begins_file) places_[i].offset = 0;
    if (begins_file && i > 0) places_[i - 1].ends_file = true;
  }
  if (!places_.empty()) places_.back().ends_file = true;
}

void FrameQueue::Frame::grown() {
  digest_.add(std::as_bytes(std::span(buffer_)));
  length_ += buffer_.size();
  std::unique_lock lock(queue_.mutex_);
  const std::optional<uint64_t>& offset = queue_.places_[number_].offset;
  if (!offset) {
    hold();
    queue_.changed_.wait(lock, [&] {
      return queue_.stopped_ || offset || queue_.waiting_bytes_ <= queue_.waiting_limit_;
    });
  }
  if (queue_.stopped_) fail(ErrorKind::cancelled, "stopped with another thread");
  if (!offset) return;
  written_ += queue_.write(lock, number_, *offset + written_, std::exchange(held_, {}));
  lock.unlock();
  const Place& place = queue_.places_[number_];
  queue_.files_[place.file]->write(*offset + written_, std::as_bytes(std::span(buffer_)));
  written_ += buffer_.size();
  buffer_.clear();
}

void FrameQueue::Frame::hold() {
  queue_.waiting_bytes_ += buffer_.size();
  for (std::string_view left = buffer_; !left.empty();) {
    if (held_.empty() || held_.back().size() == kPieceBytes) held_.emplace_back();
    const size_t bytes = std::min(left.size(), kPieceBytes - held_.back().size());
    held_.back().append(left.substr(0, bytes));
    left.remove_prefix(bytes);
  }
  buffer_.clear();
}

void FrameQueue::Frame::finish() {
  std::unique_lock lock(queue_.mutex_);
  Place& place = queue_.places_[number_];
  place.length = length_;
  place.digest = digest_.digest();
  if (!place.offset) {
    queue_.finished_.emplace(number_, std::move(held_));
    return;
  }
  queue_.write(lock, number_, *place.offset + written_, std::move(held_));
  queue_.place_next(lock, number_);
}

uint64_t FrameQueue::write(std::unique_lock<std::mutex>& lock, size_t number, uint64_t at,
                           Pieces held) {
  if (held.empty()) return 0;
  WritableFile& file = *files_[places_[number].file];
  lock.unlock();
  uint64_t bytes = 0;
  for (std::string& piece : held) {
    file.write(at + bytes, std::as_bytes(std::span(piece)));
    bytes += piece.size();
    piece = {};
  }
  lock.lock();
  waiting_bytes_ -= bytes;
  changed_.notify_all();
  return bytes;
}

void FrameQueue::place_next(std::unique_lock<std::mutex>& lock, size_t number) {
  for (; !places_[number].ends_file; ++number) {
    const uint64_t at =
        checked_add(*places_[number].offset, places_[number].length, "a compressed file");
    places_[number + 1].offset = at;
    changed_.notify_all();
    auto finished = finished_.extract(number + 1);
    if (!finished) return;  // who makes it goes on
    write(lock, number + 1, at, std::move(finished.mapped()));
  }
}

void FrameQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace ferry
