#include "ckpt/engine/frame_queue.h"

#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {

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
  std::unique_lock lock(queue_.mutex_);
  queue_.waiting_bytes_ += buffer_.size() - counted_;
  counted_ = buffer_.size();
  const std::optional<uint64_t>& offset = queue_.places_[number_].offset;
  queue_.changed_.wait(lock, [&] {
    return queue_.stopped_ || offset || queue_.waiting_bytes_ <= queue_.waiting_limit_;
  });
  if (queue_.stopped_) fail(ErrorKind::cancelled, "stopped with another thread");
  if (!offset) return;
  const uint64_t at = *offset + written_;
  queue_.write(lock, number_, at, buffer_);
  counted_ = 0;
  digest_.add(std::as_bytes(std::span(buffer_)));
  written_ += buffer_.size();
  buffer_.clear();
}

void FrameQueue::Frame::finish() {
  digest_.add(std::as_bytes(std::span(buffer_)));
  std::unique_lock lock(queue_.mutex_);
  queue_.waiting_bytes_ += buffer_.size() - counted_;
  Place& place = queue_.places_[number_];
  place.length = written_ + buffer_.size();
  place.digest = digest_.digest();
  if (!place.offset) {
    queue_.finished_.emplace(number_, std::move(buffer_));
    return;
  }
  queue_.write(lock, number_, *place.offset + written_, buffer_);
  queue_.place_next(lock, number_);
}

void FrameQueue::write(std::unique_lock<std::mutex>& lock, size_t number, uint64_t at,
                       const std::string& bytes) {
  WritableFile& file = *files_[places_[number].file];
  lock.unlock();
  file.write(at, std::as_bytes(std::span(bytes)));
  lock.lock();
  waiting_bytes_ -= bytes.size();
  changed_.notify_all();
}

void FrameQueue::place_next(std::unique_lock<std::mutex>& lock, size_t number) {
  for (; !places_[number].ends_file; ++number) {
    const uint64_t at =
        checked_add(*places_[number].offset, places_[number].length, "a compressed file");
    places_[number + 1].offset = at;
    changed_.notify_all();
    auto finished = finished_.extract(number + 1);
    if (!finished) return;  // who makes it goes on
    write(lock, number + 1, at, finished.mapped());
  }
}

void FrameQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace ferry
