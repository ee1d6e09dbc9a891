// Random runs, to random layouts and back: flat buckets and rank folders hold what was given to
// them.
#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>

#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "ckpt/megatron/optimizer/bucket_optimizer.h"
#include "ckpt/megatron/optimizer/buckets/bucket_writer.h"
#include "ckpt/megatron/rank_folders/rank_folders.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "tests/megatron/random_run.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

// The model as it is, and the buckets as a checkpoint would hold them: a chunk a piece.
Catalog stored(const RunState& state, const PlacedBuckets& placed) {
  Plan plan;
  plan.source = state.source;
  plan.dropped = placed.repeated;
  uint64_t bytes = 0;
  const auto add = [&](const StateTensor& tensor, const std::vector<Box>& boxes) {
    Entry entry{tensor.name, tensor.dtype, tensor.shape, {}, tensor.role};
    for (const Box& box : boxes) {
      Extent extent;
      extent.offset = bytes;
      extent.length = static_cast<uint64_t>(element_count(box.size, "") * size_bytes(tensor.dtype));
      bytes += extent.length;
      entry.chunks.push_back({{box}, {}, extent});
    }
    plan.target.entries.push_back(std::move(entry));
    plan.recipes.push_back(tensor.recipe);
  };
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model) add(tensor, {Box::whole(tensor.shape)});
  }
  for (const PlacedTensor& tensor : placed.tensors) {
    std::vector<Box> boxes;
    for (const Shard& shard : tensor.shards) boxes.push_back(shard.box);
    add(tensor.tensor, boxes);
  }
  plan.target.files = {{"file", bytes}};
  check(plan);
  const auto files = std::make_shared<MemoryFileSystem>();
  files->create_folder("out");
  EngineOptions options;
  options.threads = 1;
  options.memory_bytes = 1 << 20;
  run(plan, *files, "out", options);
  Catalog catalog = plan.target;
  catalog.file_system = files;
  catalog.files[0].path = "out/file";
  return catalog;
}

// With the buckets' state instead of the buckets.
ModuleChoice decode(Catalog& catalog, const RunArguments& run) {
  std::vector<ModelTensor> tensors;
  for (const Entry& entry : catalog.entries) {
    if (entry.role == Role::model) tensors.push_back({entry.name, entry.shape, entry.dtype});
  }
  DecodedBuckets decoded = decode_buckets(catalog, ModelLayout(std::move(tensors), run));
  std::erase_if(catalog.entries, [](const Entry& entry) { return entry.role != Role::model; });
  std::ranges::move(decoded.entries, std::back_inserter(catalog.entries));
  return decoded.modules;
}

TEST(FlatBuckets, HoldWhatWasGivenToThem) {
  uint64_t ambiguous = 0;
  const uint64_t cases = test::for_random_cases(150, [&](uint64_t number) {
    test::RandomRun random(number);
    const Catalog& source = random.source();
    Catalog catalog = source;
    for (int hop = 0; hop < 2; ++hop) {  // the second one from what the first one stored
      const RunState state = random.state(catalog, true);
      const RunArguments run = read_run_arguments(state.args.value);
      Catalog next = stored(state, place_buckets(state, run));
      try {
        EXPECT_EQ(decode(next, run), default_modules(run));
      } catch (const Error& error) {  // all bounds of parameters are those of data ranks, too
        ASSERT_THAT(error.what(), testing::HasSubstr("two orders of the parameters fit"));
        ++ambiguous;
        return;
      }
      test::expect_same_tensors(next, source);
      catalog = std::move(next);
    }
  });
  EXPECT_LE(ambiguous, 1 + cases / 100);
}

TEST(RankFolders, HoldWhatWasGivenToThem) {
  uint64_t written = 0;
  const uint64_t cases = test::for_random_cases(150, [&](uint64_t number) {
    test::RandomRun random(number);
    const Catalog& source = random.source();
    const RunState state = random.state(source, number % 2 == 0);
    const auto files = std::make_shared<MemoryFileSystem>();
    try {
      test::write(plan_legacy(state, {}), files, "out");
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), testing::HasSubstr("write the same folder"));
      return;  // expert tensor ranks that the format has no names for
    }
    ++written;
    const Checkpoint back = open_legacy(files, "out");
    ASSERT_EQ(back.optimizer_problem, "");
    EXPECT_EQ(back.modules, default_modules(read_run_arguments(state.args.value)));
    Catalog expected = source;
    if (number % 2 != 0 && random.dtype() == DType::f32) {  // its own master
      std::erase_if(expected.entries, [](const Entry& entry) {
        return entry.name.starts_with("optimizer.state.param.");
      });
    }
    test::expect_same_tensors(back.catalog, expected);
  });
  EXPECT_GE(2 * written + 2, cases);
}

}  // namespace
}  // namespace ferry
