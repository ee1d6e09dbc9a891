#include "ckpt/engine/sealer.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// The part of `bytes`, which lie at `offset`, that is inside [begin, end).
template <typename Byte>
std::span<Byte> part_inside(std::span<Byte> bytes, uint64_t offset, uint64_t begin, uint64_t end) {
  const uint64_t from = std::clamp(begin, offset, offset + bytes.size());
  const uint64_t to = std::clamp(end, from, offset + bytes.size());
  return bytes.subspan(from - offset, to - from);
}

// Puts the bytes of a value that begins at `at` where `bytes`, which lie at `offset`, overlap it.
void patch(std::span<std::byte> bytes, uint64_t offset, uint64_t at,
           std::span<const std::byte> value) {
  const auto to = part_inside(bytes, offset, at, at + value.size());
  if (to.empty()) return;
  const uint64_t begin = offset + static_cast<uint64_t>(to.data() - bytes.data());
  std::copy_n(value.data() + (begin - at), to.size(), to.data());
}

}  // namespace

Sealer::Sealer(const Plan& plan, std::span<WritableFile* const> files,
               const std::atomic<bool>* cancel)
    : plan_(plan),
      files_(files),
      cancel_(cancel),
      index_(plan.items),
      bytes_left_(plan.items.size()),
      digests_(plan.items.size()) {
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      const auto item = index_.find(extent.file, extent.offset, extent.length);
      if (item) bytes_left_[*item] += extent.length;
    }
  }
  for (uint32_t i = 0; i < plan.items.size(); ++i) {
    if (bytes_left_[i] == 0) literals_.push_back(i);
  }
}

void Sealer::wrote(const std::vector<Transfer>& transfers, std::span<std::byte> buffer) {
  for (const Transfer& transfer : transfers) {
    const auto item = index_.find(transfer.out_file, transfer.out_offset, 1);
    if (!item) continue;
    const uint64_t bytes = transfer.out_bytes();
    if (bytes_left_[*item].fetch_sub(bytes) == bytes) seal(*item, buffer);
  }
}

bool Sealer::seal_next_literal(std::span<std::byte> buffer) {
  const size_t next = next_literal_++;
  if (next >= literals_.size()) return false;
  seal(literals_[next], buffer);
  return true;
}

void Sealer::seal(uint32_t position, std::span<std::byte> buffer) {
  const Item& item = plan_.items[position];
  WritableFile& file = *files_[item.file];
  const uint64_t payload_end = item.payload_offset + item.payload_length;
  uint32_t crc = 0;
  DigestStream stream;
  for (uint64_t done = 0; done < item.length;) {
    if (cancel_ && *cancel_) fail(ErrorKind::cancelled, "stopped on request");
    const uint64_t at = item.offset + done;
    const auto bytes = buffer.first(std::min<uint64_t>(buffer.size(), item.length - done));
    file.read(at, bytes);
    done += bytes.size();
    if (!item.crc32_offsets.empty()) {
      crc = crc32(part_inside(bytes, at, item.payload_offset, payload_end), crc);
      if (at + bytes.size() > payload_end) {
        std::byte value[4];
        for (int i = 0; i < 4; ++i) value[i] = static_cast<std::byte>(crc >> (8 * i));
        for (uint64_t offset : item.crc32_offsets) patch(bytes, at, offset, value);
      }
    }
    stream.add(bytes);
  }
  for (uint64_t offset : item.crc32_offsets) {
    std::byte value[4];
    for (int i = 0; i < 4; ++i) value[i] = static_cast<std::byte>(crc >> (8 * i));
    file.write(offset, value);
  }
  digests_[position] = stream.digest();
}

}  // namespace ferry
