// Plans whose source is compressed: memory, files for what memory does not hold, damage.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <zstd.h>

#include <cstdlib>
#include <random>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/run.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::HasSubstr;

std::string compressed(const std::string& bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

std::string random_bytes(size_t count) {
  std::mt19937 random(7);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % 16);
  return bytes;
}

// A matrix of bytes that is stored in column blocks, each a stream with a trailer after its
// elements, and the plan that writes it as one file.
struct StreamsJob {
  StreamsJob(int64_t rows, int64_t columns, int64_t blocks, const std::string& content) {
    source.file_system = memory;
    memory->create_folder("out");
    const int64_t width = columns / blocks;
    Entry entry{"matrix", DType::u8, {rows, columns}, {}, Role::model};
    for (int64_t block = 0; block < blocks; ++block) {
      std::string bytes;
      for (int64_t row = 0; row < rows; ++row) {
        bytes += content.substr(static_cast<size_t>(row * columns + block * width),
                                static_cast<size_t>(width));
      }
      const std::string packed = compressed(bytes + "trailer");
      const std::string path = "src/" + std::to_string(block);
      memory->put(path, packed);
      const uint32_t file = source.add_file(path, packed.size());
      Chunk chunk{{{{0, block * width}, {rows, width}}}, {}, {file, 0, packed.size()}};
      chunk.extent.zstd = true;
      chunk.extent.decoded_end = bytes.size();
      entry.chunks.push_back(chunk);
    }
    source.entries.push_back(entry);
    plan.source = SharedCatalog::borrow(source);
    plan.target.files.push_back({"all", content.size()});
    Entry target{"matrix", DType::u8, {rows, columns}, {}, Role::model};
    target.chunks.push_back({{Box::whole(target.shape)}, {}, {0, 0, content.size()}});
    plan.target.entries.push_back(target);
    plan.recipes.push_back({{0}, {copy_all(target.shape)}, {}});
    check(plan);
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

uint64_t operations(const StreamsJob& job, uint64_t memory_bytes) {
  const FaultFileSystem counting(job.memory, 0, ErrorKind::io);
  job.memory->remove_all("out/all");
  EngineOptions options;
  options.threads = 2;
  options.memory_bytes = memory_bytes;
  run(job.plan, counting, "out", options);
  return counting.operations();
}

TEST(ZstdSource, SmallStreamsLieInMemoryAndLargeOnesInFilesWithoutNames) {
  constexpr int64_t kRows = 300, kColumns = 2000, kBlocks = 200;
  const std::string content = random_bytes(kRows * kColumns);
  const StreamsJob job(kRows, kColumns, kBlocks, content);
  // 200 streams of 3 kB: all fit, some do, none does. Whoever is met again after it was dropped is
  // decoded once more, into a file, and not at each of the many tiles.
  const uint64_t fit = operations(job, 64 << 20);
  EXPECT_EQ(job.memory->get("out/all"), content);
  for (const uint64_t memory_bytes : {400'000, 20'000}) {
    EXPECT_GT(operations(job, memory_bytes), fit + kBlocks) << memory_bytes;
    EXPECT_LT(operations(job, memory_bytes), fit + 8 * kBlocks) << memory_bytes;
    EXPECT_EQ(job.memory->get("out/all"), content) << memory_bytes;
    EXPECT_EQ(job.memory->list("out"), std::vector<std::string>{"all"});
  }
  EXPECT_LT(fit, 10u);
}

uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
}

// Reads a few rows into memory; no folder is given for what streams decode to.
std::string first_rows(const StreamsJob& job, int64_t rows, uint64_t memory_bytes) {
  const Entry& entry = job.source.entries[0];
  const Dims shape{rows, entry.shape[1]};
  std::string bytes(static_cast<size_t>(rows * shape[1]), '\0');
  Plan plan;
  plan.source = SharedCatalog::borrow(job.source);
  plan.target.files.push_back({"memory", bytes.size()});
  plan.target.entries.push_back({"rows", DType::u8, shape, {}, Role::model});
  plan.target.entries[0].chunks.push_back({{Box::whole(shape)}, {}, {0, 0, bytes.size()}});
  plan.recipes.push_back({{0}, {copy_box(Box::whole(shape), {0, 0})}, {}});
  MemoryTarget target("memory", std::as_writable_bytes(std::span(bytes)));
  WritableFile* files[] = {&target};
  EngineOptions options;
  options.memory_bytes = memory_bytes;
  options.threads = 2;  // the budget is shared out over them
  run(plan, files, options);
  return bytes;
}

TEST(ZstdSource, MemoryIsBoundedWithoutAFolderToo) {
  constexpr int64_t kRows = 8, kColumns = 10 << 20;
  const StreamsJob job(kRows, kColumns, 1, std::string(kRows * kColumns, 'x'));
  const uint64_t before = peak_bytes();
  const std::string rows = first_rows(job, 1, 8 << 20);
  EXPECT_EQ(rows, std::string(kColumns, 'x'));
  // Besides the result: the budget, the decoder's window and buffers. The stream has 80 MiB.
  EXPECT_LT(peak_bytes() - before, rows.size() + (40 << 20));
}

TEST(ZstdSource, WithoutAFolderForTemporaryFilesItSaysWhatToDo) {
  const StreamsJob job(10, 1000, 1, random_bytes(10'000));
  const char* former = std::getenv("TMPDIR");
  const std::string kept = former ? former : "";
  ::setenv("TMPDIR", "/nowhere", 1);
  try {
    first_rows(job, 2, 1000);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("set TMPDIR"));
  }
  EXPECT_EQ(first_rows(job, 2, 1 << 20).size(), 2000u);  // memory holds it
  former ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST(ZstdSource, DamageAfterTheElementsIsSeen) {
  StreamsJob job(10, 1000, 2, random_bytes(10'000));
  std::string packed = job.memory->get("src/1");
  packed.back() = static_cast<char>(packed.back() ^ 1);  // of the checksum
  job.memory->put("src/1", packed);
  const auto expect_damage = [](const auto& read) {
    try {
      read();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_THAT(error.what(), HasSubstr("tensor matrix: src/1 at byte 0: zstd stream"));
      EXPECT_THAT(error.what(), HasSubstr("checksum"));
    }
  };
  expect_damage([&] { run(job.plan, *job.memory, "out", {}); });
  expect_damage([&] { first_rows(job, 1, 1 << 20); });
  expect_damage(
      [&] { scan(job.source, job.source.entries[0], 1 << 20, [](std::span<const std::byte>) {}); });
}

}  // namespace
}  // namespace ferry
