#include "ckpt/engine/run.h"

#include <algorithm>
#include <atomic>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/items/item_digester.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/quantise/quantising_runner.h"
#include "ckpt/engine/target_files.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/engine/tiles/tile_queue.h"

namespace ferry {
namespace {

constexpr uint64_t kReadBackBytes = 1 << 20;  // read back at once to digest an item

uint64_t bytes_of(const std::vector<Transfer>& transfers) {
  uint64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.out_bytes();
  return bytes;
}

enum class Order { by_file, by_entry };

std::vector<Digest> execute(const Plan& plan, std::span<WritableFile* const> files,
                            const SpoolPlace& spool, const EngineOptions& options,
                            ProgressMeter& meter, Order order) {
  const int threads = thread_count(options.threads);
  const uint64_t for_streams = stream_memory(*plan.source, options.memory_bytes);
  const uint64_t bytes_per_thread =
      (options.memory_bytes - for_streams) / static_cast<uint64_t>(threads);
  const uint64_t read_back_bytes = std::clamp<uint64_t>(bytes_per_thread, 1, kReadBackBytes);
  PlanCompiler compiler(plan);
  SourceFiles sources(*plan.source, spool, for_streams, threads, options.borrowed);
  const bool in_order = order == Order::by_entry;  // as one thread would take the tiles
  TileQueue queue(plan, compiler, in_order ? 1 : threads, bytes_per_thread, options.borrowed);
  if (options.borrowed && !queue.has_borrowed()) options.borrowed->release();
  ItemDigester digester(plan, files, options.cancel, options.values);
  const FileSystem* file_system = plan.source->file_system.get();
  const std::map<uint32_t, float> largest =
      largest_magnitudes(plan, compiler, sources, threads, bytes_per_thread, options);
  on_threads(threads, [&](int thread, const std::atomic<bool>& stop) {
    TileRunner runner(sources, files, file_system, &digester);
    QuantisingRunner quantiser(plan, compiler, sources, files, digester, largest);
    while (!stop) {
      if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
      if (const auto tile = queue.next(in_order ? 0 : thread)) {
        const bool quantised = plan.recipes[tile->entry].quantise.has_value();
        const std::vector<Transfer> transfers = quantised
                                                    ? quantiser.run(tile->entry, tile->box)
                                                    : compiler.compile(tile->entry, tile->box);
        meter.add(quantised ? bytes_of(transfers) : runner.run(transfers));
        if (queue.finish(*tile)) options.borrowed->release();
        digester.wrote(transfers, runner.scratch(read_back_bytes));
      } else if (!digester.digest_next_literal(runner.scratch(read_back_bytes))) {
        return;
      }
    }
  });
  return digester.take_digests();
}

std::vector<Digest> run_into(const Plan& plan, std::span<WritableFile* const> files,
                             const SpoolPlace& spool, const EngineOptions& options,
                             Order order = Order::by_file) {
  ProgressMeter meter(options.progress, plan.target_bytes());
  for (const Literal& literal : plan.literals) {
    if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
    files[literal.file]->write(literal.offset, std::as_bytes(std::span(literal.bytes)));
    meter.add(literal.bytes.size());
  }
  std::vector<Digest> digests = execute(plan, files, spool, options, meter, order);
  meter.finish();
  return digests;
}

}  // namespace

std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const EngineOptions& options) {
  return run_into(plan, files, {}, options);
}

void run_in_order(const Plan& plan, std::span<WritableFile* const> files,
                  const EngineOptions& options) {
  run_into(plan, files, {}, options, Order::by_entry);
}

std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const FileSystem& file_system, const std::string& spool_folder,
                        const EngineOptions& options) {
  return run_into(plan, files, {&file_system, spool_folder}, options);
}

std::vector<Digest> run(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                        const EngineOptions& options) {
  TargetFiles files(plan, file_system, folder, TargetMode::create, options);
  std::vector<Digest> digests = run_into(plan, files.files(), {&file_system, folder}, options);
  files.sync();
  return digests;
}

}  // namespace ferry
