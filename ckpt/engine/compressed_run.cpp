#include "ckpt/engine/compressed_run.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/core/item_index.h"
#include "ckpt/core/plan.h"
#include "ckpt/engine/frame_queue.h"
#include "ckpt/engine/items/item_stream.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/target_files.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/tiles/tile_cut.h"
#include "ckpt/io/zstd_encoder.h"

namespace ferry {
namespace {

// The bytes of a plan's items, from front to back, without files in between.

/// What each item of a plan is made of. The plan must outlive it and stay unchanged.
class PlannedItems {
 public:
  /// A literal, or a chunk of a tensor.
  struct Part {
    uint64_t offset = 0;  // in the file
    const Literal* literal = nullptr;
    uint32_t entry = 0;
    const Chunk* chunk = nullptr;  // of the target entry
  };

  explicit PlannedItems(const Plan& plan);

  const Plan& plan() const noexcept { return plan_; }
  /// By rising offsets; they tile the item.
  std::span<const Part> parts(uint32_t item) const { return parts_[item]; }

 private:
  const Plan& plan_;
  std::vector<std::vector<Part>> parts_;
};

/// One a thread. Holds buffers of some times `part_bytes`.
class PlannedItemReader {
 public:
  using Consume = std::function<void(std::span<const std::byte>)>;

  PlannedItemReader(const PlannedItems& items, TensorSource& source, uint64_t part_bytes);

  /// Calls `consume` with all bytes of an item in their order, at most `part_bytes` at once (an
  /// element at least), CRC-32s in their places.
  void read(uint32_t item, const Consume& consume);

 private:
  using Pass = std::function<void(std::span<std::byte>)>;

  void read_literal(const Literal& literal, const Pass& pass);
  void read_chunk(const PlannedItems::Part& part, const Pass& pass);

  const PlannedItems& items_;
  uint64_t part_bytes_;
  TensorReader reader_;
  Buffer buffer_;
};

PlannedItems::PlannedItems(const Plan& plan) : plan_(plan), parts_(plan.items.size()) {
  const ItemIndex index(plan.items);
  const auto add = [&](uint32_t file, uint64_t length, const Part& part) {
    if (length == 0) return;
    const auto item = index.find(file, part.offset, length);
    if (!item) fail(ErrorKind::internal, "bytes of the target belong to no item");
    parts_[*item].push_back(part);
  };
  for (const Literal& literal : plan.literals) {
    add(literal.file, literal.bytes.size(), {literal.offset, &literal, 0, nullptr});
  }
  for (uint32_t i = 0; i < plan.target.entries.size(); ++i) {
    for (const Chunk& chunk : plan.target.entries[i].chunks) {
      add(chunk.extent.file, chunk.extent.length, {chunk.extent.offset, nullptr, i, &chunk});
    }
  }
  for (std::vector<Part>& parts : parts_) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
  }
}

PlannedItemReader::PlannedItemReader(const PlannedItems& items, TensorSource& source,
                                     uint64_t part_bytes)
    : items_(items), part_bytes_(part_bytes), reader_(source) {}

void PlannedItemReader::read(uint32_t number, const Consume& consume) {
  const Item& item = items_.plan().items[number];
  ItemStream stream(item);
  const auto pass = [&](std::span<std::byte> bytes) {
    stream.pass(bytes);
    consume(bytes);
  };
  for (const PlannedItems::Part& part : items_.parts(number)) {
    if (part.offset != stream.position()) {
      fail(ErrorKind::internal, "an item has a hole, or parts that overlap");
    }
    part.literal ? read_literal(*part.literal, pass) : read_chunk(part, pass);
  }
  if (stream.position() != item.offset + item.length)
    fail(ErrorKind::internal, "an item is not filled");
}

void PlannedItemReader::read_literal(const Literal& literal, const Pass& pass) {
  for (auto left = std::as_bytes(std::span(literal.bytes)); !left.empty();) {
    const auto copy = buffer_.take(std::min<uint64_t>(part_bytes_, left.size()));
    std::memcpy(copy.data(), left.data(), copy.size());
    left = left.subspan(copy.size());
    pass(copy);
  }
}

void PlannedItemReader::read_chunk(const PlannedItems::Part& part, const Pass& pass) {
  const Entry& entry = items_.plan().target.entries[part.entry];
  const int64_t size = size_bytes(entry.dtype);
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(part_bytes_) / size);
  for (const Box& box : cut_into_tiles(part.chunk->box.size, most)) {
    const auto bytes =
        buffer_.take(static_cast<uint64_t>(element_count(box.size, entry.name) * size));
    reader_.read(part.entry, *part.chunk, box, bytes);
    pass(bytes);
  }
}

constexpr uint64_t kMostPartBytes = 4 << 20;  // read at once
constexpr uint64_t kLeastPartBytes = 64 << 10;
// A part as it is read, as it leaves its recipe and as it is compressed; and an output that grows.
constexpr uint64_t kBuffersPerThread = 5;

// How the memory is shared: half for threads at work, half for frames that wait.
struct Shares {
  int threads = 1;
  uint64_t part_bytes = kMostPartBytes;
  uint64_t waiting_bytes = 0;
};

Shares share_out(int level, uint64_t memory_bytes, const EngineOptions& options) {
  Shares shares;
  const uint64_t half = memory_bytes / 2;
  const uint64_t encoder = ZstdEncoder::memory_bytes(level);
  const uint64_t least = encoder + kBuffersPerThread * kLeastPartBytes;
  const auto most_threads = static_cast<uint64_t>(thread_count(options.threads));
  const uint64_t threads = std::clamp<uint64_t>(half / least, 1, most_threads);
  shares.threads = static_cast<int>(threads);
  const uint64_t share = half / threads;
  const uint64_t for_parts = share > encoder ? share - encoder : 0;
  shares.part_bytes = std::clamp(for_parts / kBuffersPerThread, kLeastPartBytes, kMostPartBytes);
  shares.waiting_bytes = half;
  return shares;
}

// What the plan says of its target, once the frames have their places.
void describe_frames(Plan& plan, const std::vector<uint32_t>& order, const FrameQueue& frames) {
  const ItemIndex index(plan.items);
  const auto frame_of = [&](const Extent& extent) {
    const auto item = index.find(extent.file, extent.offset, std::max<uint64_t>(extent.length, 1));
    if (!item) fail(ErrorKind::internal, "bytes of a compressed file belong to no item");
    return *item;
  };
  std::vector<Extent> places(plan.items.size());
  for (FileInfo& file : plan.target.files) file.bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t file = plan.items[order[i]].file;
    places[order[i]] = {file, frames.offset(i), frames.length(i), Encoding::raw, true};
    plan.target.files[file].bytes = frames.offset(i) + frames.length(i);
  }
  for (Entry& entry : plan.target.entries) {
    for (Chunk& chunk : entry.chunks) {
      chunk.extent = places[frame_of(chunk.extent)];
      chunk.extent.encoding = Encoding::torch_zip;
    }
  }
  for (Object& object : plan.target.objects) object.extent = places[frame_of(object.extent)];
  for (uint32_t i = 0; i < plan.items.size(); ++i) {
    plan.items[i] = {places[i].file, places[i].offset, places[i].length, {}};
  }
  plan.literals.clear();
}

}  // namespace

std::vector<Digest> run_compressed(Plan& plan, const FileSystem& file_system,
                                   const std::string& folder, int level,
                                   const EngineOptions& options) {
  const uint64_t for_streams = stream_memory(*plan.source, options.memory_bytes);
  const Shares shares = share_out(level, options.memory_bytes - for_streams, options);
  TargetFiles files(plan, file_system, folder, TargetMode::create_empty, options);
  const std::vector<uint32_t> order = ItemIndex(plan.items).in_order();
  FrameQueue frames(plan.items, order, files.files(), shares.waiting_bytes);
  const PlannedItems items(plan);
  TensorSource source(plan, for_streams, shares.threads, {&file_system, folder});
  ProgressMeter meter(options.progress, plan.target_bytes());
  std::atomic<size_t> next{0};
  const auto make_frames = [&](int, const std::atomic<bool>& stop) {
    PlannedItemReader reader(items, source, shares.part_bytes);
    ZstdEncoder encoder(level);
    for (size_t i = next++; i < order.size() && !stop; i = next++) {
      FrameQueue::Frame frame(frames, i);
      encoder.begin(plan.items[order[i]].length);
      reader.read(order[i], [&](std::span<const std::byte> bytes) {
        if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
        encoder.add(bytes, frame.buffer());
        frame.grown();
        meter.add(bytes.size());
      });
      frame.finish();
    }
  };
  on_threads(shares.threads, make_frames, [&] { frames.stop(); });
  files.sync();
  meter.finish();
  describe_frames(plan, order, frames);
  std::vector<Digest> digests(plan.items.size());
  for (size_t i = 0; i < order.size(); ++i) digests[order[i]] = frames.digest(i);
  return digests;
}

}  // namespace ferry
