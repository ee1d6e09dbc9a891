// Numbers in a file, of which a few are in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Lie in the file from byte `begin` on. For one thread.
template <typename T>
class SpilledNumbers {
 public:
  /// The first `count` are there already.
  explicit SpilledNumbers(uint64_t begin, int64_t count = 0) : begin_(begin), written_(count) {}

  int64_t size() const { return written_ + std::ssize(kept_); }

  void push_back(WritableFile& file, T value) {
    kept_.push_back(value);
    if (kept_.size() >= kKept) flush(file);
  }

  void flush(WritableFile& file) {
    file.write(place(written_), std::as_bytes(std::span(kept_)));
    written_ += std::ssize(kept_);
    kept_.clear();
  }

  /// use(span) for all of them, piece by piece; they have to be flushed.
  template <typename Use>
  void for_each_piece(const WritableFile& file, const Use& use) const {
    std::vector<T> piece;
    for (int64_t at = 0; at < written_; at += std::ssize(piece)) {
      piece.resize(static_cast<size_t>(std::min<int64_t>(kKept, written_ - at)));
      file.read(place(at), std::as_writable_bytes(std::span(piece)));
      use(std::span<const T>(piece));
    }
  }

 private:
  static constexpr int64_t kKept = 64 << 10;

  uint64_t place(int64_t i) const { return begin_ + static_cast<uint64_t>(i) * sizeof(T); }

  uint64_t begin_;
  int64_t written_;
  std::vector<T> kept_;
};

}  // namespace ferry
