#include "ckpt/engine/sealer.h"

#include <algorithm>
#include <array>
#include <map>

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

// The CRC-32s of an item whose bytes pass by in their order.
class Checks {
 public:
  using Value = std::array<std::byte, 4>;

  explicit Checks(const Item& item) : payloads_(item.payloads) {}

  /// The bytes at `offset`. Puts the values in their places.
  void pass(std::span<std::byte> bytes, uint64_t offset) {
    const uint64_t end = offset + bytes.size();
    for (; next_ < payloads_.size(); ++next_) {
      const Item::Payload& payload = payloads_[next_];
      const uint64_t payload_end = payload.offset + payload.length;
      crc_ = crc32(part_inside(bytes, offset, payload.offset, payload_end), crc_);
      if (end < payload_end) break;
      for (const uint64_t place : payload.crc32_offsets) values_[place] = little_endian(crc_);
      crc_ = 0;
    }
    // Those that begin before the bytes may reach into them.
    const uint64_t first = offset < 3 ? 0 : offset - 3;
    for (auto at = values_.lower_bound(first); at != values_.end() && at->first < end; ++at) {
      patch(bytes, offset, at->first, at->second);
    }
  }

  const std::map<uint64_t, Value>& values() const noexcept { return values_; }

 private:
  static Value little_endian(uint32_t crc) {
    Value value;
    for (int i = 0; i < 4; ++i) value[i] = static_cast<std::byte>(crc >> (8 * i));
    return value;
  }

  std::span<const Item::Payload> payloads_;
  size_t next_ = 0;  // payload whose end has not passed
  uint32_t crc_ = 0;
  std::map<uint64_t, Value> values_;  // by place
};

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
  DigestStream stream;
  Checks checks(item);
  for (uint64_t done = 0; done < item.length;) {
    if (cancel_ && *cancel_) fail(ErrorKind::cancelled, "stopped on request");
    const uint64_t at = item.offset + done;
    const auto bytes = buffer.first(std::min<uint64_t>(buffer.size(), item.length - done));
    file.read(at, bytes);
    done += bytes.size();
    checks.pass(bytes, at);
    stream.add(bytes);
  }
  for (const auto& [offset, value] : checks.values()) file.write(offset, value);
  digests_[position] = stream.digest();
}

}  // namespace ferry
