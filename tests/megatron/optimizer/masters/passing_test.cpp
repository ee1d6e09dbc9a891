// Weights and masters that pass by in blocks, in any order, cut in any way.
#include "ckpt/megatron/optimizer/masters/passing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "ckpt/checkpoint.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Random = std::mt19937;

int64_t between(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// One tensor and its master, each in chunks that lie strewn over files.
class StoredPair {
 public:
  StoredPair(Random& random, Dims shape, DType weight = DType::bf16) : shape_(std::move(shape)) {
    const auto count = static_cast<size_t>(element_count(shape_, "a tensor"));
    std::normal_distribution<float> normal(0, 0.02F);
    for (size_t i = 0; i < count; ++i) {
      masters.push_back(normal(random));
      const auto bits = std::bit_cast<uint32_t>(masters.back());
      weights.push_back(static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
    }
    catalog.entries = {{"w", weight, shape_, {}, Role::model},
                       {"optimizer.state.param.w", DType::f32, shape_, {}, Role::optimizer}};
    pairs = {{"w", shape_, weight, {{1}, {copy_all(shape_)}, {}}, {{0}, {copy_all(shape_)}, {}}}};
  }

  // Gives both their places and bytes.
  void store(Random& random) {
    contents.assign(3, "");
    store(random, catalog.entries[0], weights.data(), sizeof weights[0]);
    store(random, catalog.entries[1], masters.data(), sizeof masters[0]);
    catalog.files.clear();
    for (size_t i = 0; i < contents.size(); ++i) {
      catalog.files.push_back({"file" + std::to_string(i), contents[i].size()});
    }
  }

  // Blocks of all sizes, runs of them in any order, to several readers.
  std::vector<size_t> unsure(Random& random, uint64_t most_of_a_file = UINT64_MAX) const {
    PassingMasters passing(catalog, pairs, catalog.files, 1);
    std::vector<PassingMasters::Seer> readers;
    for (int i = 0; i < 3; ++i) readers.push_back(passing.reader());
    std::vector<uint32_t> files(contents.size());
    std::iota(files.begin(), files.end(), 0);
    std::shuffle(files.begin(), files.end(), random);
    for (const uint32_t file : files) {
      const auto bytes = std::as_bytes(std::span(contents[file]));
      const uint64_t end = std::min<uint64_t>(most_of_a_file, bytes.size());
      const auto& reader = readers[static_cast<size_t>(between(random, 0, 2))];
      const int64_t most_of_a_block = between(random, 1, 3000);
      for (uint64_t at = 0; at < end;) {
        const auto size = std::min<uint64_t>(
            end - at, static_cast<uint64_t>(between(random, 1, most_of_a_block)));
        reader(file, at, bytes.subspan(at, size));
        at += size;
      }
    }
    return passing.not_seen_to_agree();
  }

  Catalog catalog;
  std::vector<MasterPair> pairs;
  std::vector<float> masters;
  std::vector<uint16_t> weights;
  std::vector<std::string> contents;

 private:
  void store(Random& random, Entry& entry, const void* elements, size_t size) {
    entry.chunks.clear();
    Box rest = Box::whole(shape_);
    while (rest.size[0] > 0) {  // slabs, each of a few boxes or runs
      Box slab = rest;
      slab.size[0] = between(random, 1, rest.size[0]);
      rest.offset[0] += slab.size[0];
      rest.size[0] -= slab.size[0];
      if (between(random, 0, 1) == 0) {
        const int64_t count = element_count(slab.size, entry.name);
        const int64_t middle = between(random, 1, std::max<int64_t>(1, count - 1));
        add(random, entry, {slab, 0, 0, 0, middle}, elements, size);
        if (middle < count)
          add(random, entry, {slab, 0, 0, middle, count - middle}, elements, size);
        continue;
      }
      Box left = slab, right = slab;
      left.size.back() = between(random, 1, slab.size.back());
      right.offset.back() += left.size.back();
      right.size.back() -= left.size.back();
      if (shape_.size() == 1) left = slab, right.size.back() = 0;
      add(random, entry, {left}, elements, size);
      if (right.size.back() > 0) add(random, entry, {right}, elements, size);
    }
  }

  void add(Random& random, Entry& entry, const Shard& shard, const void* elements, size_t size) {
    const auto file = static_cast<uint32_t>(between(random, 0, 2));
    std::string& content = contents[file];
    content.append(static_cast<size_t>(between(random, 0, 7)), '?');
    const uint64_t begin = content.size();
    const Dims strides = row_major_strides(shape_);
    const int64_t count = shard.elements(entry.name);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = i + (shard.is_run() ? shard.run_begin : 0), position = 0;
      for (size_t axis = shape_.size(); axis-- > 0;) {
        position += (shard.box.offset[axis] + at % shard.box.size[axis]) * strides[axis];
        at /= shard.box.size[axis];
      }
      content.append(static_cast<const char*>(elements) + static_cast<size_t>(position) * size,
                     size);
    }
    entry.chunks.push_back({shard, {}, {file, begin, content.size() - begin}});
  }

  Dims shape_;
};

Dims any_shape(Random& random) {
  if (between(random, 0, 2) == 0) return {between(random, 2, 5000)};
  return {between(random, 1, 9), between(random, 1, 7), between(random, 2, 90)};
}

TEST(PassingMasters, AgreeHoweverTheyAreCutAndRead) {
  test::for_random_cases(300, [](uint64_t i) {
    Random random(static_cast<uint32_t>(i));
    StoredPair pair(random, any_shape(random));
    pair.store(random);
    EXPECT_THAT(pair.unsure(random), IsEmpty());
  });
}

TEST(PassingMasters, ThatDifferAnywhereDoNot) {
  test::for_random_cases(300, [](uint64_t i) {
    Random random(static_cast<uint32_t>(i));
    StoredPair pair(random, any_shape(random));
    const auto last = static_cast<int64_t>(pair.weights.size()) - 1;
    const auto a = static_cast<size_t>(between(random, 0, last));
    const auto b = static_cast<size_t>(between(random, 0, last));
    if (i % 2 == 0 || pair.weights[a] == pair.weights[b]) {
      pair.weights[a] ^= static_cast<uint16_t>(1 << between(random, 0, 15));
    } else {
      std::swap(pair.weights[a], pair.weights[b]);
    }
    pair.store(random);
    EXPECT_THAT(pair.unsure(random), ElementsAre(0));
  });
}

TEST(PassingMasters, ThatDidNotPassWholeDoNot) {
  Random random(1);
  StoredPair pair(random, {40, 50});
  pair.store(random);
  const auto longest = std::max_element(
      pair.contents.begin(), pair.contents.end(),
      [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  EXPECT_THAT(pair.unsure(random, longest->size() - 1), ElementsAre(0));
  EXPECT_THAT(pair.unsure(random, longest->size()), IsEmpty());
}

TEST(PassingMasters, OfWhichNoSumIsTakenDoNot) {
  Random random(2);
  StoredPair halves(random, {40, 50}, DType::f16);
  halves.store(random);
  EXPECT_THAT(halves.unsure(random), ElementsAre(0));
  StoredPair pair(random, {40, 50});
  pair.store(random);
  StoredPair compressed = pair, transposed = pair, shared = pair, negative = pair;
  compressed.catalog.entries[0].chunks[0].extent.zstd = true;
  EXPECT_THAT(compressed.unsure(random), ElementsAre(0));
  Chunk& chunk = transposed.catalog.entries[1].chunks[0];
  chunk = {{chunk.box}, {1, chunk.box.size[0] + 1}, chunk.extent};
  EXPECT_THAT(transposed.unsure(random), ElementsAre(0));
  negative.catalog.entries[0].chunks[0].math.negated = true;
  EXPECT_THAT(negative.unsure(random), ElementsAre(0));
  shared.catalog.entries[0].chunks.push_back(shared.catalog.entries[0].chunks[0]);
  EXPECT_THAT(shared.unsure(random), ElementsAre(0));
}

// What real runs store: boxes of ranks, runs of buckets, records of zip archives.
TEST(PassingMasters, OfRealRunsAgree) {
  for (const char* run : {"llama_legacy_tp2pp2", "llama_tp2dp2_dpr", "llama_dp4_dpr_buckets",
                          "qwen3moe_te_ep2pp2_dpr", "swiss_llama_tp2pp2", "llama_pp2vpp"}) {
    SCOPED_TRACE(run);
    const Checkpoint checkpoint =
        open_checkpoint(posix_file_system(), std::string(FERRY_FIXTURES) + "/megatron/" + run, {});
    const Catalog& catalog = checkpoint.catalog;
    const std::vector<MasterPair> pairs = master_pairs(catalog);
    ASSERT_FALSE(pairs.empty());
    PassingMasters passing(catalog, pairs, catalog.files, 2);
    const PassingMasters::Seer see = passing.reader();
    for (uint32_t i = 0; i < catalog.files.size(); ++i) {
      const std::string content =
          read_file(*catalog.file_system, catalog.files[i].path, uint64_t{1} << 30);
      see(i, 0, std::as_bytes(std::span(content)));
    }
    EXPECT_THAT(passing.not_seen_to_agree(), IsEmpty());
  }
}

// A mean of both neighbours may have become either: whoever compares elements decides.
TEST(PassingMasters, RoundedByAnotherRuleAreLeftForACloserLook) {
  Random random(3);
  StoredPair pair(random, {64});
  pair.masters[5] = std::bit_cast<float>(0x3f808000U);
  pair.weights[5] = 0x3f81;
  pair.store(random);
  EXPECT_THAT(pair.unsure(random), ElementsAre(0));
  pair.weights[5] = 0x3f80;
  pair.store(random);
  EXPECT_THAT(pair.unsure(random), IsEmpty());
}

}  // namespace
}  // namespace ferry
