#include "ckpt/engine/items/item_digester.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>

#include "ckpt/base/error.h"
#include "ckpt/engine/transfers/side_buffer.h"

namespace ferry {
namespace {

constexpr size_t kSmallBufferBytes = 64 << 10;  // on the stack

}  // namespace

ItemDigester::ItemDigester(const Plan& plan, std::span<WritableFile* const> files,
                           const std::atomic<bool>* cancel, PassingValues* values)
    : plan_(plan),
      files_(files),
      cancel_(cancel),
      values_(values),
      index_(plan.items),
      states_(plan.items.size()),
      digests_(plan.items.size()) {
  for (size_t i = 0; i < states_.size(); ++i) states_[i].position = plan.items[i].offset;
  if (!states_.empty()) note_literals();
}

// What no chunk covers is written already.
void ItemDigester::note_literals() {
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> extents;  // item, begin, end
  for (const Entry& entry : plan_.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      if (extent.length == 0) continue;  // no transfer comes to its item
      const auto item = index_.find(extent.file, extent.offset, extent.length);
      if (item) extents.emplace_back(*item, extent.offset, extent.offset + extent.length);
    }
  }
  std::sort(extents.begin(), extents.end());
  auto next = extents.begin();
  for (uint32_t i = 0; i < states_.size(); ++i) {
    uint64_t at = plan_.items[i].offset;
    if (next == extents.end() || std::get<0>(*next) != i) literals_.push_back(i);
    for (; next != extents.end() && std::get<0>(*next) == i; ++next) {
      const auto [item, begin, end] = *next;
      if (at < begin) states_[i].written.add(at, begin);
      at = end;
    }
    if (at < end_of(i)) states_[i].written.add(at, end_of(i));
  }
}

void ItemDigester::show(uint32_t file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto position = index_.find(file, offset, bytes.size());
    if (!position) return;
    State& state = states_[*position];
    const uint64_t begin = std::max(offset, plan_.items[*position].offset);
    const uint64_t end = std::min(offset + bytes.size(), end_of(*position));
    const std::unique_lock lock(state.mutex, std::try_to_lock);
    if (lock && state.position <= begin && state.written.end_from(state.position) >= begin) {
      std::array<std::byte, kSmallBufferBytes> buffer;
      read_back(*position, begin, buffer);
    }
    if (lock && state.position == begin) {
      pass(*position, bytes.subspan(begin - offset, end - begin));
    }
    bytes = bytes.subspan(end - offset);
    offset = end;
  }
}

void ItemDigester::wrote(const std::vector<Transfer>& transfers, std::span<std::byte> buffer) {
  std::vector<uint32_t> touched;
  for (const Transfer& transfer : transfers) {
    // A transfer writes to one chunk, which is in one item.
    const auto position = index_.find(transfer.out_file, transfer.out_offset, 1);
    if (!position) continue;
    WrittenRuns& written = states_[*position].written;
    std::vector<int64_t> strides;
    pack(transfer, Side::out, strides)
        .for_each(transfer.out_offset, 0,
                  [&](uint64_t at, uint64_t, uint64_t bytes) { written.add(at, at + bytes); });
    touched.push_back(*position);
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const uint32_t position : touched) advance(position, buffer);
}

bool ItemDigester::digest_next_literal(std::span<std::byte> buffer) {
  const size_t next = next_literal_++;
  if (next >= literals_.size()) return false;
  const uint32_t position = literals_[next];
  if (plan_.items[position].length == 0) {
    digests_[position] = digest_of({});
  } else {
    advance(position, buffer);
  }
  return true;
}

uint64_t ItemDigester::end_of(uint32_t position) const {
  return plan_.items[position].offset + plan_.items[position].length;
}

// Hashes all that can be. Whoever finds the stream in use leaves the rest to its user, who looks
// again after letting go and sees what was noted before.
void ItemDigester::advance(uint32_t position, std::span<std::byte> buffer) {
  State& state = states_[position];
  while (state.written.end_from(state.position) > state.position) {
    const std::unique_lock lock(state.mutex, std::try_to_lock);
    if (!lock) return;
    read_back(position, state.written.end_from(state.position), buffer);
  }
}

void ItemDigester::read_back(uint32_t position, uint64_t end, std::span<std::byte> buffer) {
  State& state = states_[position];
  while (state.position < end) {
    if (cancel_ && *cancel_) fail(ErrorKind::cancelled, "stopped on request");
    const auto bytes = buffer.first(std::min<uint64_t>(buffer.size(), end - state.position));
    files_[plan_.items[position].file]->read(state.position, bytes);
    pass(position, bytes);
  }
}

// The next bytes of an item. In those that cannot be changed no CRC-32 has its place.
template <typename Byte>
void ItemDigester::pass(uint32_t position, std::span<Byte> bytes) {
  State& state = states_[position];
  const Item& item = plan_.items[position];
  if (!state.stream) {
    state.stream = std::make_unique<ItemStream>(item);
    if (values_) state.see = values_->reader();
  }
  if (state.see) state.see(item.file, state.stream->position(), bytes);
  if constexpr (std::is_const_v<Byte>) {
    state.stream->pass_elements(bytes);
  } else {
    state.stream->pass(bytes);
  }
  note_passed(position);
}

// Keeps the stream's place; with the last byte, takes the digest.
void ItemDigester::note_passed(uint32_t position) {
  State& state = states_[position];
  const uint64_t at = state.stream->position();
  if (at == end_of(position)) {
    digests_[position] = state.stream->digest();
    WritableFile& file = *files_[plan_.items[position].file];
    for (const auto& [offset, value] : state.stream->crc32s()) file.write(offset, value);
    state.stream.reset();
    state.see = nullptr;
  }
  state.position = at;
}

}  // namespace ferry
