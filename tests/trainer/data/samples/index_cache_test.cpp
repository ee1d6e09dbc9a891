// Caches that are damaged, half-written or of something else.
#include "trainer/data/samples/index_cache.h"

#include <gmock/gmock.h>

#include <array>
#include <map>
#include <random>

#include "tests/io/fault_file_system.h"
#include "tests/random_cases.h"
#include "tests/trainer/data/corpora.h"

namespace ferry {
namespace {

std::map<std::string, std::string> files_of(const MemoryFileSystem& memory) {
  std::map<std::string, std::string> files;
  for (const std::string& name : memory.list("cache")) files[name] = memory.get("cache/" + name);
  return files;
}

DataOptions options() {
  return test::options_of(
      {{"data_path", {"0.3", test::kCorpusA, "0.7", test::kCorpusB}}, {"samples", {300, 10, 0}}});
}

std::vector<int32_t> all_tokens(const Dataset& dataset) {
  std::vector<int32_t> tokens;
  Sample sample;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, sample);
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
  }
  return tokens;
}

// What NumPy 2.4 writes.
TEST(IndexCache, HeadersAreNumpys) {
  EXPECT_EQ(npy_header("<i4", std::array{int64_t{10}}),
            std::string("\x93NUMPY\x01\0v\0", 10) +
                "{'descr': '<i4', 'fortran_order': False, 'shape': (10,), }" +
                std::string(59, ' ') + "\n");
  EXPECT_EQ(npy_header("<i8", std::array{int64_t{3}, int64_t{2}}),
            std::string("\x93NUMPY\x01\0v\0", 10) +
                "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2), }" +
                std::string(58, ' ') + "\n");
}

// Each file of the cache in turn: gone, cut short, of other bytes. The next run has the same
// samples and mends the cache.
TEST(IndexCache, DamageIsMended) {
  const auto fresh = test::corpora();
  const std::vector<int32_t> truth = all_tokens(*open_datasets(fresh, options()).train);
  const auto files = files_of(*fresh);
  ASSERT_EQ(files.size(), 6u * 4 + 3 * 3);
  for (const auto& [name, bytes] : files) {
    SCOPED_TRACE(name);
    std::vector<std::string> damaged = {"", bytes.substr(0, 9), bytes.substr(0, bytes.size() / 2),
                                        bytes.substr(0, bytes.size() - 1), bytes + "\n"};
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 1;
    damaged.push_back(flipped);
    for (size_t i = 0; i < damaged.size(); ++i) {
      if (damaged[i] == bytes) continue;
      // A padding blank of a header, or an empty array, which has no middle but its header.
      const auto memory = test::corpora();
      for (const auto& [other, content] : files) memory->put("cache/" + other, content);
      memory->put("cache/" + name, damaged[i]);
      EXPECT_EQ(all_tokens(*open_datasets(memory, options()).train), truth);
      EXPECT_EQ(files_of(*memory), files) << "damage " << i;
    }
  }
}

// Any byte of any array: the samples are right, or those of another right order of the same samples
// (an order is not kept twice; what is no order at all is noticed).
TEST(IndexCache, AnyFlippedByteGivesSamples) {
  const auto fresh = test::corpora();
  const auto datasets = open_datasets(fresh, options());
  const auto files = files_of(*fresh);
  const std::vector<int32_t> truth = all_tokens(*datasets.train);
  test::for_random_cases(60, [&](uint64_t number) {
    std::mt19937_64 random(number);
    const auto memory = test::corpora();
    for (const auto& [name, content] : files) {
      std::string bytes = content;
      const auto at = random() % bytes.size();
      if (random() % 2 == 0) bytes[at] = static_cast<char>(random());
      memory->put("cache/" + name, bytes);
    }
    EXPECT_EQ(all_tokens(*open_datasets(memory, options()).train), truth);
  });
}

// A run that is killed after any of its operations leaves what the next one mends.
TEST(IndexCache, KilledWhileItIsStored) {
  const auto fresh = test::corpora();
  open_datasets(fresh, options());
  const auto files = files_of(*fresh);
  uint64_t kills = 0;
  for (uint64_t fail_at = 1;; ++fail_at) {
    const auto memory = test::corpora();
    const auto faulty = std::make_shared<FaultFileSystem>(memory, fail_at, ErrorKind::io, true);
    try {
      open_datasets(faulty, options());
    } catch (const Error&) {
      ++kills;
    }
    open_datasets(memory, options());
    EXPECT_EQ(files_of(*memory), files) << "killed at operation " << fail_at;
    if (faulty->operations() < fail_at) break;
  }
  EXPECT_GT(kills, 50u);
}

// Token files that were written again under the same name: nothing in the description shows it.
TEST(IndexCache, OtherTokensUnderTheSameNameAreNoticed) {
  const auto memory = test::corpora();
  DataOptions alone = options();
  alone.data_path = {test::kCorpusA};
  open_datasets(memory, alone);
  const auto before = files_of(*memory);
  for (const char* suffix : {".bin", ".idx"}) {
    memory->put(test::kCorpusA + std::string(suffix),
                memory->get(test::kCorpusB + std::string(suffix)));
  }
  const auto datasets = open_datasets(memory, alone);
  EXPECT_NE(files_of(*memory), before);
  const auto other = test::corpora();
  for (const char* suffix : {".bin", ".idx"}) {
    other->put(test::kCorpusA + std::string(suffix),
               other->get(test::kCorpusB + std::string(suffix)));
  }
  EXPECT_EQ(all_tokens(*datasets.train), all_tokens(*open_datasets(other, alone).train));
  EXPECT_EQ(files_of(*memory), files_of(*other));
}

TEST(IndexCache, IsNextToTheDatasetWhereNoneIsNamed) {
  const auto memory = test::corpora();
  DataOptions alone = options();
  alone.data_path = {test::kCorpusA};
  alone.cache_path.clear();
  open_datasets(memory, alone);
  EXPECT_EQ(memory->list("corpus_a_text_document/cache/GPTDataset_indices").size(), 12u);
}

}  // namespace
}  // namespace ferry
