#include "ckpt/engine/decoded_stream.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {

void DecodedStream::expect(uint64_t bytes) { memory_.reserve(std::min(bytes, most_in_memory_)); }

void DecodedStream::append(std::span<const std::byte> bytes) {
  if (!file_ && bytes.size() > most_in_memory_ - memory_.size()) {
    file_ = create_file_();
    if (!memory_.empty()) file_->write(0, memory_);
    memory_ = {};
  }
  if (file_) {
    file_->write(size_, bytes);
  } else {
    // Not by doubling: the limit is one of memory.
    const size_t needed = memory_.size() + bytes.size();
    if (needed > memory_.capacity())
      memory_.reserve(std::min<uint64_t>(2 * needed, most_in_memory_));
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
  }
  size_ += bytes.size();
}

void DecodedStream::read(uint64_t offset, std::span<std::byte> into) const {
  if (offset > size_ || into.size() > size_ - offset) {
    fail(ErrorKind::corrupt,
         "{}: the zstd stream ends at decoded byte {} where {} from byte {} on are needed", name_,
         size_, into.size(), offset);
  }
  if (file_) return file_->read(offset, into);
  std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
}

std::span<const std::byte> DecodedStream::view(uint64_t offset, uint64_t bytes) const {
  if (file_ || offset > size_ || bytes > size_ - offset) return {};
  return std::span(memory_).subspan(offset, bytes);
}

}  // namespace ferry
