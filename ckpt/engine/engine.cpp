#include "ckpt/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/sealer.h"
#include "ckpt/engine/tile.h"
#include "ckpt/engine/tile_cut.h"

namespace ferry {
namespace {

constexpr uint64_t kSealBytes = 1 << 20;  // read at once to seal an item

// Hands out the tiles of all entries in order.
class TileQueue {
 public:
  TileQueue(const Plan& plan, PlanCompiler& compiler, uint64_t bytes_per_thread)
      : plan_(plan), compiler_(compiler), bytes_per_thread_(bytes_per_thread) {}

  struct Tile {
    size_t entry;
    Box box;
  };

  std::optional<Tile> next() {
    const std::lock_guard lock(mutex_);
    while (at_ == tiles_.size()) {
      if (entry_ == plan_.target.entries.size()) return std::nullopt;
      tiles_ = cut(entry_++);
      at_ = 0;
    }
    return Tile{entry_ - 1, std::move(tiles_[at_++])};
  }

 private:
  std::vector<Box> cut(size_t position) {
    const Entry& entry = plan_.target.entries[position];
    if (entry.elements() == 0) return {};
    const int64_t out_bytes = size_bytes(entry.dtype);
    int64_t in_bytes = out_bytes;
    for (uint32_t input : plan_.recipes[position].inputs) {
      in_bytes = std::max(in_bytes, size_bytes(plan_.source->entries[input].dtype));
    }
    const auto most =
        std::max<int64_t>(1, static_cast<int64_t>(bytes_per_thread_) / (in_bytes + out_bytes));
    return choose_tiles(entry.shape, entry.dtype, most,
                        [&](const Box& box) { return compiler_.compile(position, box); });
  }

  const Plan& plan_;
  PlanCompiler& compiler_;
  uint64_t bytes_per_thread_;
  std::mutex mutex_;
  size_t entry_ = 0;  // first entry that is not cut yet
  std::vector<Box> tiles_;
  size_t at_ = 0;
};

std::vector<Digest> execute(const Plan& plan, std::span<WritableFile* const> files,
                            const SpoolPlace& spool, const EngineOptions& options,
                            ProgressMeter& meter) {
  const int threads = thread_count(options.threads);
  const uint64_t bytes_per_thread = options.memory_bytes / static_cast<uint64_t>(threads);
  const uint64_t seal_bytes = std::clamp<uint64_t>(bytes_per_thread, 1, kSealBytes);
  PlanCompiler compiler(plan);
  SourceFiles sources(*plan.source, spool);
  TileQueue queue(plan, compiler, bytes_per_thread);
  Sealer sealer(plan, files, options.cancel);
  std::atomic<bool> stop{false};
  const FileSystem* file_system = plan.source->file_system.get();
  on_threads(threads, [&](int) {
    TileRunner runner(sources, files, file_system);
    try {
      while (!stop) {
        if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
        if (const auto tile = queue.next()) {
          const std::vector<Transfer> transfers = compiler.compile(tile->entry, tile->box);
          meter.add(runner.run(transfers));
          sealer.wrote(transfers, runner.scratch(seal_bytes));
        } else if (!sealer.seal_next_literal(runner.scratch(seal_bytes))) {
          return;
        }
      }
    } catch (...) {
      stop = true;
      throw;
    }
  });
  return sealer.take_digests();
}

std::vector<Digest> run_into(const Plan& plan, std::span<WritableFile* const> files,
                             const SpoolPlace& spool, const EngineOptions& options) {
  ProgressMeter meter(options.progress, plan.target_bytes());
  for (const Literal& literal : plan.literals) {
    files[literal.file]->write(literal.offset, std::as_bytes(std::span(literal.bytes)));
    meter.add(literal.bytes.size());
  }
  std::vector<Digest> digests = execute(plan, files, spool, options, meter);
  meter.finish();
  return digests;
}

}  // namespace

std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const EngineOptions& options) {
  return run_into(plan, files, {}, options);
}

std::vector<Digest> run(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                        const EngineOptions& options) {
  std::vector<std::unique_ptr<WritableFile>> owners;
  std::vector<WritableFile*> files;
  for (const FileInfo& file : plan.target.files) {
    owners.push_back(file_system.create(join(folder, file.path), file.bytes));
    files.push_back(owners.back().get());
  }
  std::vector<Digest> digests = run_into(plan, files, {&file_system, folder}, options);
  std::atomic<size_t> next{0};
  on_threads(std::min<int>(thread_count(options.threads), static_cast<int>(files.size())),
             [&](int) {
               for (size_t i = next++; i < files.size(); i = next++) {
                 if (options.cancel && *options.cancel)
                   fail(ErrorKind::cancelled, "stopped on request");
                 files[i]->sync();
               }
             });
  return digests;
}

}  // namespace ferry
