// Every single-bit flip of every file of a checkpoint is found: all of them, not a sample.
#include <gtest/gtest.h>

#include <atomic>

#include "ckpt/base/threads.h"
#include "ckpt/integrity/verify.h"
#include "tests/integrity/written_folder.h"

namespace ferry {
namespace {

// Flips one bit after another of a file in a copy of the folder of its own, and counts what the
// whole of verify() finds.
int64_t flips_found(const std::string& name, int part, int parts, std::string* missed) {
  const test::WrittenFolder written({true, true});
  const std::string path = written.path(name), content = written.memory->get(path);
  VerifyOptions options;
  options.engine.threads = 1;
  int64_t found = 0;
  for (size_t i = static_cast<size_t>(part); i < 8 * content.size();
       i += static_cast<size_t>(parts)) {
    std::string flipped = content;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << i % 8));
    written.memory->put(path, std::move(flipped));
    if (verify(written.memory, written.kFolder, options).problems.empty()) {
      *missed = name + " byte " + std::to_string(i / 8) + " bit " + std::to_string(i % 8);
    } else {
      ++found;
    }
  }
  return found;
}

TEST(Flips, OfEveryBitOfEveryFileAreFound) {
  const test::WrittenFolder written({true, true});
  EXPECT_TRUE(verify(written.memory, written.kFolder, {}).problems.empty());
  int64_t bits = 0;
  std::atomic<int64_t> found{0};
  for (const std::string& name : written.memory->list(written.kFolder)) {
    bits += static_cast<int64_t>(8 * written.memory->get(written.path(name)).size());
    const int threads = thread_count(0);
    on_threads(threads, [&](int thread) {
      std::string missed;
      found += flips_found(name, thread, threads, &missed);
      EXPECT_EQ(missed, "");
    });
  }
  EXPECT_EQ(found, bits);
  EXPECT_GT(bits, 30'000);
}

}  // namespace
}  // namespace ferry
