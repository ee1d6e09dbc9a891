#include "ckpt/engine/compressed_run.h"

#include <algorithm>
#include <atomic>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/core/item_index.h"
#include "ckpt/engine/frame_queue.h"
#include "ckpt/engine/planned_items.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/target_files.h"
#include "ckpt/io/zstd_encoder.h"

namespace ferry {
namespace {

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
