#include "ckpt/engine/items/item_stream.h"

#include <algorithm>

namespace ferry {
namespace {

// The part of `bytes`, which begin at `offset`, that is inside [begin, end).
template <typename Byte>
std::span<Byte> part_inside(std::span<Byte> bytes, uint64_t offset, uint64_t begin, uint64_t end) {
  const uint64_t from = std::clamp(begin, offset, offset + bytes.size());
  const uint64_t to = std::clamp(end, from, offset + bytes.size());
  return bytes.subspan(from - offset, to - from);
}

// Puts the bytes of a value that begins at `at` where `bytes`, which begin at `offset`, overlap it.
void patch(std::span<std::byte> bytes, uint64_t offset, uint64_t at,
           std::span<const std::byte> value) {
  const auto to = part_inside(bytes, offset, at, at + value.size());
  if (to.empty()) return;
  const uint64_t begin = offset + static_cast<uint64_t>(to.data() - bytes.data());
  std::copy_n(value.data() + (begin - at), to.size(), to.data());
}

ItemStream::Value little_endian(uint32_t crc) {
  ItemStream::Value value;
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(crc >> (8 * i));
  return value;
}

}  // namespace

void ItemStream::pass(std::span<std::byte> bytes) {
  check(bytes);
  // Values that begin before the bytes may reach into them.
  const uint64_t first = position_ < 3 ? 0 : position_ - 3;
  const uint64_t end = position_ + bytes.size();
  for (auto at = values_.lower_bound(first); at != values_.end() && at->first < end; ++at) {
    patch(bytes, position_, at->first, at->second);
  }
  stream_.add(bytes);
  position_ = end;
}

void ItemStream::pass_elements(std::span<const std::byte> bytes) {
  check(bytes);
  stream_.add(bytes);
  position_ += bytes.size();
}

void ItemStream::check(std::span<const std::byte> bytes) {
  const uint64_t end = position_ + bytes.size();
  for (; payload_ < item_.payloads.size(); ++payload_) {
    const Item::Payload& payload = item_.payloads[payload_];
    const uint64_t payload_end = payload.offset + payload.length;
    crc_ = crc32(part_inside(bytes, position_, payload.offset, payload_end), crc_);
    if (end < payload_end) return;
    for (const uint64_t place : payload.crc32_offsets) values_[place] = little_endian(crc_);
    crc_ = 0;
  }
}

}  // namespace ferry
