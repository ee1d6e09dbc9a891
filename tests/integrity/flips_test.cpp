// Every single-bit flip of every file of a checkpoint is found: all of them where
// FERRY_TEST_EVERY_FLIP is set, else one of each byte.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "ckpt/base/threads.h"
#include "ckpt/core/passing_values.h"
#include "ckpt/integrity/verify.h"
#include "tests/integrity/written_folder.h"
#include "tests/integrity/written_run.h"

namespace ferry {
namespace {

using test::RunFormat;
using test::WrittenFolder;
using test::WrittenRun;

void add_files(const FileSystem& files, const std::string& folder,
               std::vector<std::string>& paths) {
  for (const std::string& name : files.list(folder)) {
    const std::string path = join(folder, name);
    if (files.status(path).kind == PathKind::folder) {
      add_files(files, path, paths);
    } else {
      paths.push_back(path);
    }
  }
}

// How many bits of each byte are flipped, one after another.
int64_t flips_of_byte() { return std::getenv("FERRY_TEST_EVERY_FLIP") ? 8 : 1; }

// Flips one bit after another of a file, of which this is one of several threads, each with a
// folder of its own, and counts what the whole of verify() finds.
int64_t flips_found(const std::shared_ptr<MemoryFileSystem>& memory, const std::string& folder,
                    const std::string& path, size_t thread, size_t threads) {
  const std::string content = memory->get(path);
  VerifyOptions options;
  options.engine.threads = 1;
  int64_t found = 0;
  const auto flips = static_cast<size_t>(flips_of_byte());
  for (size_t i = thread; i < flips * content.size(); i += threads) {
    std::string flipped = content;
    const size_t byte = i / flips, bit = flips == 8 ? i % 8 : byte % 8;
    flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
    memory->put(path, std::move(flipped));
    const bool is_found = !verify(memory, folder, options).problems.empty();
    EXPECT_TRUE(is_found) << path << " byte " << byte << " bit " << bit;
    found += is_found;
  }
  memory->put(path, content);
  return found;
}

// `make` gives the same folder each time.
template <typename Make>
void expect_all_found(const Make& make) {
  const auto first = make();
  for (const Problem& problem : verify(first.memory, first.kFolder, {}).problems) {
    ADD_FAILURE() << problem.what;
  }
  std::vector<std::string> paths;
  add_files(*first.memory, first.kFolder, paths);
  int64_t bits = 0;
  for (const std::string& path : paths) {
    bits += flips_of_byte() * static_cast<int64_t>(first.memory->get(path).size());
  }
  std::atomic<int64_t> found{0};
  const int threads = thread_count(0);
  on_threads(threads, [&](int thread, const std::atomic<bool>& stop) {
    const auto written = make();
    for (const std::string& path : paths) {
      if (stop) return;
      found += flips_found(written.memory, written.kFolder, path, static_cast<size_t>(thread),
                           static_cast<size_t>(threads));
    }
  });
  EXPECT_EQ(found, bits);
  EXPECT_GT(bits, 2'500);
}

TEST(Flips, OfHuggingFaceAreAllFound) {
  expect_all_found([] { return WrittenFolder({true, true}); });
}
TEST(Flips, OfTorchDistAreAllFound) {
  expect_all_found([] { return WrittenRun(RunFormat::torch_dist); });
}
TEST(Flips, OfCompressedTorchDistAreAllFound) {
  expect_all_found([] { return WrittenRun(RunFormat::torch_dist_zstd); });
}
TEST(Flips, OfPlainDcpAreAllFound) {
  expect_all_found([] { return WrittenRun(RunFormat::dcp); });
}
TEST(Flips, OfRankFoldersAreAllFound) {
  expect_all_found([] { return WrittenRun(RunFormat::legacy); });
}

}  // namespace
}  // namespace ferry
