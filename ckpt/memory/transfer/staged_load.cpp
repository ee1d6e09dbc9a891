#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/run_state_memory.h"

namespace ferry {
namespace {

constexpr uint64_t kPartAlignmentBytes = 64;

bool has_streams(const Catalog& catalog) {
  return std::ranges::any_of(catalog.entries, [](const Entry& entry) {
    return std::ranges::any_of(entry.chunks, [](const Chunk& chunk) { return chunk.extent.zstd; });
  });
}

// The elements from `first` on of a region.
Region part_of(const Region& whole, int64_t first, int64_t count) {
  Region part = whole;
  part.data += first * size_bytes(whole.dtype);
  if (whole.shard.is_run() || first > 0 || count < whole.shard.elements(whole.name)) {
    part.shard.run_begin = whole.shard.run_begin + first;
    part.shard.run_count = count;
  }
  return part;
}

// Hands out regions, in their order, a buffer's worth after the other.
class LoadParts {
 public:
  LoadParts(std::span<const Region> regions, uint64_t most) : regions_(regions), most_(most) {}

  // Empty when all were handed out.
  std::vector<Region> next() {
    std::vector<Region> parts;
    uint64_t used = 0;
    while (region_ < regions_.size()) {
      const Region& region = regions_[region_];
      const int64_t left = region.shard.elements(region.name) - first_;
      const auto each = static_cast<uint64_t>(size_bytes(region.dtype));
      const int64_t room = static_cast<int64_t>((most_ - std::min(used, most_)) / each);
      const int64_t count = std::min(left, room);
      if (count > 0) parts.push_back(part_of(region, first_, count));
      if (count < left) {
        first_ += count;
        break;
      }
      used += (static_cast<uint64_t>(count) * each + kPartAlignmentBytes - 1) /
              kPartAlignmentBytes * kPartAlignmentBytes;
      ++region_;
      first_ = 0;
    }
    return parts;
  }

 private:
  std::span<const Region> regions_;
  uint64_t most_;
  size_t region_ = 0;
  int64_t first_ = 0;  // element of the region
};

// Staging memory, which nothing is on its way from when it goes or is written again.
class StagedPart {
 public:
  StagedPart(Stager& stager, uint64_t bytes) : stager_(stager), memory_(stager.allocate(bytes)) {}
  ~StagedPart() {
    try {
      finish_copies();
    } catch (const std::exception&) {
      // The device failed: whoever uses it next gets the error.
    }
  }
  StagedPart(const StagedPart&) = delete;
  StagedPart& operator=(const StagedPart&) = delete;

  void finish_copies() {
    if (const auto wait = std::exchange(wait_, {})) wait();
  }

  // Calls `fill` with the parts in the staging memory, and sends them on their way.
  template <typename Fill>
  void pass_on(std::vector<Region> parts, const Fill& fill) {
    finish_copies();
    std::vector<StagingCopy> copies;
    std::byte* next = memory_.bytes.data();
    for (Region& part : parts) {
      const uint64_t bytes = checked_bytes(part);
      copies.push_back({next, part.data, bytes});
      part.data = next;
      next += (bytes + kPartAlignmentBytes - 1) / kPartAlignmentBytes * kPartAlignmentBytes;
    }
    fill(parts);
    wait_ = stager_.place(copies);
  }

 private:
  Stager& stager_;
  StagingMemory memory_;
  std::function<void()> wait_;
};

}  // namespace

void load_staged(const Checkpoint& checkpoint, const RunState& state,
                 std::span<const Region> regions, Stager& stager, uint64_t buffer_bytes,
                 EngineOptions options) {
  constexpr uint64_t kLeastBytes = 4096, kTileBytes = uint64_t{128} << 20;
  uint64_t largest = 0, all = 0;
  for (const Region& region : regions) {
    const uint64_t bytes = checked_bytes(region) + kPartAlignmentBytes;
    largest = std::max(largest, bytes);
    all += bytes;
  }
  uint64_t most = std::max(buffer_bytes, kLeastBytes);
  if (has_streams(checkpoint.catalog)) most = std::max(most, largest);
  most = std::min(most, std::max(all, kLeastBytes));
  // One buffer gives all threads something to do.
  options.memory_bytes = std::min(options.memory_bytes, std::max(kTileBytes, buffer_bytes / 2));
  const TensorSet tensors = tensors_of(checkpoint, state);
  StagedPart first(stager, most), second(stager, most);
  std::array<StagedPart*, 2> turns{&first, &second};
  LoadParts parts(regions, most);
  for (std::vector<Region> next = parts.next(); !next.empty(); next = parts.next()) {
    turns[0]->pass_on(std::move(next), [&](const std::vector<Region>& staged) {
      load(tensors, staged, options);
    });
    std::swap(turns[0], turns[1]);
  }
  first.finish_copies();
  second.finish_copies();
}

}  // namespace ferry
