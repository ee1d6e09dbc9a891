// Optimizer state that Megatron Core stored in the wrong places, as its own code wrote it
// (tests/interop/fixtures/make_shifted_state.py), and the same state in flat buckets, which have it
// right.
#include "ckpt/megatron/optimizer/masters/shifted_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "ckpt/megatron/optimizer/masters/shifted_buffer.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Checkpoint opened_run(const std::string& name) {
  return open_checkpoint(posix_file_system(), test::fixture(name));
}

EngineOptions small_engine() {
  EngineOptions options;
  options.threads = 2;
  options.memory_bytes = 64 << 10;  // many tiles
  return options;
}

std::vector<float> values_of(const Catalog& catalog, const std::string& name) {
  const Entry* entry = catalog.find(name);
  if (entry == nullptr) return {};
  const std::string bytes = read_tensor(catalog, *entry, 1 << 24);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class ShiftedRuns : public testing::TestWithParam<const char*> {};

TEST_P(ShiftedRuns, AreSeenWhenTheyAreOpened) {
  const Checkpoint shifted = opened_run(GetParam());
  EXPECT_THAT(shifted.shifted_state, HasSubstr("is in the wrong places"));
  EXPECT_THAT(compare_masters(shifted.catalog, master_pairs(shifted.catalog), small_engine()),
              Not(IsEmpty()));
  const Checkpoint right = opened_run(std::string(GetParam()) + "_right");
  EXPECT_EQ(right.shifted_state, "");
  EXPECT_EQ(right.optimizer_problem, "");
  const std::vector<MasterPair> pairs = master_pairs(right.catalog);
  EXPECT_GT(pairs.size(), 5);
  EXPECT_THAT(compare_masters(right.catalog, pairs, small_engine()), IsEmpty());
}

// All that is in the checkpoint is back in its place, bit for bit; what is not is said, and made of
// the weights or zero.
TEST_P(ShiftedRuns, AreRepaired) {
  const Checkpoint shifted = opened_run(GetParam());
  const Checkpoint right = opened_run(std::string(GetParam()) + "_right");
  RunState state = state_of(shifted);
  const ShiftRepair repair = repair_shifted_state(shifted, small_engine(), state);
  EXPECT_GT(repair.tensors, 0);
  std::map<std::string, int64_t> lost;
  for (const ShiftRepair::Lost& one : repair.lost) lost[one.tensor] = one.elements;
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::write(plan_torch_dist(std::move(state), {}), memory, "repaired");
  const Checkpoint repaired = open_checkpoint(memory, "repaired");
  EXPECT_EQ(repaired.shifted_state, "");
  for (const Entry& entry : right.catalog->entries) {
    if (entry.role != Role::optimizer) continue;
    const std::vector<float> expected = values_of(right.catalog, entry.name);
    const std::vector<float> found = values_of(repaired.catalog, entry.name);
    ASSERT_EQ(found.size(), expected.size()) << entry.name;
    const bool master = entry.name.starts_with("optimizer.state.param.");
    int64_t differing = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (found[i] == expected[i]) continue;
      ++differing;
      const float nearly = master ? std::fabs(expected[i]) / 250 : 0;
      ASSERT_NEAR(found[i], master ? expected[i] : 0, nearly) << entry.name << " " << i;
    }
    const std::string key = entry.name.substr(entry.name.find('.', 16) + 1);
    if (!master) {
      EXPECT_EQ(differing, lost.contains(key) ? lost[key] : 0) << entry.name;
    }
    EXPECT_LE(differing, lost.contains(key) ? lost[key] : 0) << entry.name;
  }
  EXPECT_FALSE(lost.empty());
}

INSTANTIATE_TEST_SUITE_P(OfMegatronCore, ShiftedRuns, testing::Values("megatron_shifted/tp2"));

TEST(ShiftedState, OfAnotherKindIsNotRepaired) {
  Checkpoint shifted = opened_run("megatron_shifted/tp2");
  Draft draft;
  const Value args = draft.copy(shifted.args.value);
  draft.put(args, "ddp_bucket_size", draft.integer(5000));
  shifted.args = std::move(draft).finish(args);
  RunState state = state_of(shifted);
  try {
    repair_shifted_state(shifted, small_engine(), state);
    FAIL() << "repaired";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("elements are not their fp32 master weights rounded"));
  }
}

TEST(ShiftedState, ThatIsInPlaceStaysAsItIs) {
  const Checkpoint right = opened_run("megatron/llama_tp2dp2_dpr");
  RunState state = state_of(right);
  const ShiftRepair repair = repair_shifted_state(right, small_engine(), state);
  EXPECT_EQ(repair.tensors, 0);
  EXPECT_THAT(repair.lost, IsEmpty());
}

// Moves of a run to a run are the elements one by one, whatever the shapes.
TEST(RunMoves, AreThoseOfTheElements) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto shape = [&](int64_t columns) {
    Dims dims;
    for (int64_t axes = below(3); axes > 0; --axes) dims.push_back(1 + below(4));
    dims.push_back(columns);
    return dims;
  };
  for (int round = 0; round < 300; ++round) {
    const int64_t columns = 1 + below(7);
    const auto shard = [&](int64_t width) {
      const Dims dims = shape(width);
      Shard whole;
      whole.box = Box::whole(dims);
      for (int64_t& offset : whole.box.offset) offset = below(3);
      return whole;
    };
    Shard from = shard(columns), to = shard(below(2) == 0 ? columns : 1 + below(7));
    const int64_t most = std::min(from.elements("from"), to.elements("to"));
    const int64_t count = 1 + below(most);
    from.run_begin = below(from.elements("from") - count + 1);
    to.run_begin = below(to.elements("to") - count + 1);
    from.run_count = to.run_count = count;
    std::vector<Move> moves;
    add_run_moves(from, to, 0, moves);
    std::map<int64_t, int64_t> moved;  // place in `to` -> place in `from`
    const auto place = [](const Dims& at, const Box& box) {
      const Dims strides = row_major_strides(box.size);
      int64_t position = 0;
      for (size_t axis = 0; axis < at.size(); ++axis) {
        const int64_t inside = at[axis] - box.offset[axis];
        EXPECT_TRUE(inside >= 0 && inside < box.size[axis]);
        position += inside * strides[axis];
      }
      return position;
    };
    for (const Move& move : moves) {
      const int64_t rows = move.loops.size() > 1 ? move.loops[0].count : 1;
      const int64_t width = move.loops.empty() ? 1 : move.loops.back().count;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < width; ++column) {
          Dims in = move.in_origin, out = move.out_origin;
          const auto step = [&](const Loop& loop, int64_t n) {
            in[static_cast<size_t>(loop.in_axis)] += n * loop.in_step;
            out[static_cast<size_t>(loop.out_axis)] += n * loop.out_step;
          };
          if (move.loops.size() > 1) step(move.loops[0], row);
          if (!move.loops.empty()) step(move.loops.back(), column);
          EXPECT_TRUE(moved.emplace(place(out, to.box), place(in, from.box)).second);
        }
      }
    }
    ASSERT_EQ(moved.size(), static_cast<size_t>(count));
    for (const auto& [out, in] : moved) {
      EXPECT_EQ(out - to.run_begin, in - from.run_begin);
      EXPECT_GE(out, to.run_begin);
    }
  }
}

// A weight that is its master rounded, and one that is not; ties go either way.
TEST(ComparedMasters, AreRoundedToNearest) {
  test::MemoryTensors tensors;
  const std::vector<uint32_t> masters = {0x3f800000, 0x3f807fff, 0x3f808000, 0x3f808000, 0x3f808001,
                                         0xbf80ffff, 0x7fc12345, 0x80000000, 0x3f808001};
  const std::vector<uint16_t> weights = {0x3f80, 0x3f80, 0x3f80, 0x3f81, 0x3f81,
                                         0xbf81, 0x7fff, 0x0000, 0x3f80};
  const auto bytes = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(values[0]));
  };
  tensors.add("w", DType::bf16, {9}, Role::model, bytes(weights));
  tensors.add("optimizer.state.param.w", DType::f32, {9}, Role::optimizer, bytes(masters));
  const Catalog& catalog = tensors.catalog();
  const auto found = compare_masters(catalog, master_pairs(catalog), small_engine());
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].differing, 1);
  EXPECT_EQ(found[0].first, 8);
  EXPECT_THAT(to_string(found[0]),
              HasSubstr("w: 1 of 9 elements are not their fp32 master weights"));
}

}  // namespace
}  // namespace ferry
