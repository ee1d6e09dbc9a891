#include "ckpt/megatron/optimizer/masters/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/base/load_as.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/tile_cut.h"
#include "ckpt/megatron/optimizer/masters/weights.h"

namespace ferry {
namespace {

constexpr uint64_t kMostTileBytes = 4 << 20;  // of the master
constexpr uint64_t kBuffers = 8;              // tiles of both, and what a reader holds of each

bool is_rounded_to_bf16(uint32_t master, uint16_t weight) {
  const uint32_t upper = master >> 16, lower = master & 0xffff;
  if ((master & 0x7fffffff) > 0x7f800000) return (weight & 0x7fff) > 0x7f80;  // NaN
  if (lower == 0x8000) return weight == upper || weight == upper + 1;
  return weight == upper + (lower > 0x8000 ? 1 : 0) || ((master | weight) & 0x7fffffff) == 0;
}

// Whether all weights are certainly their masters rounded: what is at most half a step away,
// infinities and NaNs left for a closer look. Without a branch, as nearly all elements are.
bool are_rounded_to_bf16(const std::byte* masters, const std::byte* weights, int64_t count) {
  uint32_t doubts = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto master = load_as<uint32_t>(masters + 4 * i);
    const uint32_t weight = uint32_t{load_as<uint16_t>(weights + 2 * i)} << 16;
    const bool is_far = master - weight + 0x8000 > 0x10000;
    const bool is_special = (master & 0x7f800000) == 0x7f800000;
    doubts |= static_cast<uint32_t>(is_far) | static_cast<uint32_t>(is_special);
  }
  return doubts == 0;
}

// Compares tile after tile of all pairs.
class MasterComparison {
 public:
  MasterComparison(const Catalog& catalog, const std::vector<MasterPair>& pairs,
                   const EngineOptions& options, CompareUntil until)
      : pairs_(pairs),
        options_(options),
        until_(until),
        threads_(thread_count(options.threads)),
        found_(pairs.size()) {
    plan_.source = SharedCatalog::borrow(catalog);
    for (const MasterPair& pair : pairs) {
      add_read_tensor(plan_, pair.tensor, DType::f32, pair.shape, pair.master);
      add_read_tensor(plan_, pair.tensor, pair.weight_dtype, pair.shape, pair.weight);
    }
    const uint64_t share = options.memory_bytes / static_cast<uint64_t>(threads_) / kBuffers;
    most_ = static_cast<int64_t>(std::clamp<uint64_t>(share, 64, kMostTileBytes) / sizeof(float));
  }

  std::vector<MasterMismatch> run() {
    uint64_t bytes = 0;
    for (const MasterPair& pair : pairs_) {
      bytes += static_cast<uint64_t>(element_count(pair.shape, pair.tensor)) * sizeof(float);
    }
    ProgressMeter meter(options_.progress, bytes);
    TensorSource source(plan_, stream_memory(*plan_.source, options_.memory_bytes), threads_);
    on_threads(threads_, [&](int, const std::atomic<bool>& stop) {
      TensorReader reader(source);
      std::vector<std::byte> master, weight;
      for (auto tile = next(); tile && !stop; tile = next()) {
        compare(*tile, reader, master, weight);
        meter.add(master.size());
      }
    });
    meter.finish();
    std::vector<MasterMismatch> mismatches;
    for (std::optional<MasterMismatch>& found : found_) {
      if (found) mismatches.push_back(std::move(*found));
    }
    return mismatches;
  }

 private:
  struct Tile {
    size_t pair;
    Box box;
  };

  std::optional<Tile> next() {
    const std::lock_guard lock(mutex_);
    if (options_.cancel && *options_.cancel) fail(ErrorKind::cancelled, "stopped on request");
    if (stop_) return std::nullopt;
    while (tiles_.empty()) {
      if (next_pair_ == pairs_.size()) return std::nullopt;
      const Dims& shape = pairs_[next_pair_].shape;
      if (element_count(shape, pairs_[next_pair_].tensor) > 0) {
        for (Box& box : cut_into_tiles(shape, most_))
          tiles_.push_back({next_pair_, std::move(box)});
      }
      ++next_pair_;
    }
    Tile tile = std::move(tiles_.front());
    tiles_.pop_front();
    return tile;
  }

  void compare(const Tile& tile, TensorReader& reader, std::vector<std::byte>& master,
               std::vector<std::byte>& weight) {
    const MasterPair& pair = pairs_[tile.pair];
    const int64_t count = element_count(tile.box.size, pair.tensor);
    const int64_t size = size_bytes(pair.weight_dtype);
    master.resize(static_cast<size_t>(count) * sizeof(float));
    weight.resize(static_cast<size_t>(count * size));
    const auto& entries = plan_.target.entries;
    reader.read(2 * tile.pair, entries[2 * tile.pair].chunks[0], tile.box, master);
    reader.read(2 * tile.pair + 1, entries[2 * tile.pair + 1].chunks[0], tile.box, weight);
    if (pair.weight_dtype == DType::bf16 &&
        are_rounded_to_bf16(master.data(), weight.data(), count)) {
      return;
    }
    int64_t differing = 0, first = 0;
    std::byte rounded[sizeof(double)] = {};
    for (int64_t i = 0; i < count; ++i) {
      const std::byte *from = master.data() + i * 4, *to = weight.data() + i * size;
      bool same = false;
      if (pair.weight_dtype == DType::bf16) {
        same = is_rounded_to_bf16(load_as<uint32_t>(from), load_as<uint16_t>(to));
      } else {
        convert(from, 4, DType::f32, rounded, size, pair.weight_dtype, 1);
        same = std::memcmp(rounded, to, static_cast<size_t>(size)) == 0 ||
               is_same_value(rounded, to, pair.weight_dtype);
      }
      if (!same && differing++ == 0) first = i;
    }
    if (differing > 0) note(tile, differing, first, master, weight);
  }

  // Zeros of both signs, and NaNs, whose bits may differ.
  static bool is_same_value(const std::byte* a, const std::byte* b, DType dtype) {
    const double x = load_as_double(a, dtype), y = load_as_double(b, dtype);
    return x == y || (std::isnan(x) && std::isnan(y));
  }

  void note(const Tile& tile, int64_t differing, int64_t first,
            const std::vector<std::byte>& master, const std::vector<std::byte>& weight) {
    const MasterPair& pair = pairs_[tile.pair];
    const Dims strides = row_major_strides(pair.shape);
    int64_t position = first;  // tiles are runs of the tensor's elements
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      position += tile.box.offset[axis] * strides[axis];
    }
    const std::lock_guard lock(mutex_);
    stop_ |= until_ == CompareUntil::first_mismatch;
    std::optional<MasterMismatch>& found = found_[tile.pair];
    if (!found) {
      found = MasterMismatch{pair.tensor, element_count(pair.shape, pair.tensor), 0, INT64_MAX};
    }
    found->differing += differing;
    if (position >= found->first) return;
    found->first = position;
    found->master = load_as<float>(master.data() + first * 4);
    const int64_t size = size_bytes(pair.weight_dtype);
    found->weight = load_as_double(weight.data() + first * size, pair.weight_dtype);
  }

  const std::vector<MasterPair>& pairs_;
  const EngineOptions& options_;
  const CompareUntil until_;
  const int threads_;
  int64_t most_ = 1;  // elements of a tile
  Plan plan_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::optional<MasterMismatch>> found_;
  std::deque<Tile> tiles_;
  size_t next_pair_ = 0;
  bool stop_ = false;
};

}  // namespace

std::vector<MasterPair> master_pairs(const Catalog& catalog) {
  std::vector<MasterPair> pairs;
  for (const StoredMaster& stored : stored_masters(catalog)) {
    const Entry& master = catalog.entries[stored.master];
    if (!stored.weight || master.dtype != DType::f32 || master.remainders) continue;
    const Entry& weight = catalog.entries[*stored.weight];
    const bool comparable = weight.shape == master.shape && size_bytes(weight.dtype) > 1 &&
                            can_convert(DType::f32, weight.dtype);
    if (!comparable) continue;
    const Move all = copy_all(master.shape);
    pairs.push_back({weight.name,
                     weight.shape,
                     weight.dtype,
                     {{stored.master}, {all}, {}},
                     {{*stored.weight}, {all}, {}}});
  }
  return pairs;
}

std::string to_string(const MasterMismatch& mismatch) {
  return fmt::format(
      "{}: {} of {} elements are not their fp32 master weights rounded (first at {}: {:g}, and the "
      "master weight is {:g})",
      mismatch.tensor, mismatch.differing, mismatch.elements, mismatch.first, mismatch.weight,
      mismatch.master);
}

std::vector<MasterMismatch> compare_masters(const Catalog& catalog,
                                            const std::vector<MasterPair>& pairs,
                                            const EngineOptions& options, CompareUntil until) {
  if (pairs.empty()) return {};
  return MasterComparison(catalog, pairs, options, until).run();
}

}  // namespace ferry
