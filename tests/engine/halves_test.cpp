// fp32 tensors that are stored as a bf16 tensor and 16-bit remainders: read in every way, and cut
// into halves, against the rule of the optimizer that keeps them so.
#include "ckpt/engine/elements/halves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ckpt/base/box.h"
#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

constexpr int64_t kHalfRows = 37, kHalfColumns = 23;
const Dims kHalfShape{kHalfRows, kHalfColumns};

// Transformer Engine's rule, as its kernel has it: halves of the bits, the upper one of them one
// more where the lower one is negative.
struct TwoHalves {
  uint16_t upper;
  int16_t lower;
};

TwoHalves halves_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  TwoHalves halves{static_cast<uint16_t>(bits >> 16), static_cast<int16_t>(bits & 0xffff)};
  if (halves.lower < 0) ++halves.upper;
  return halves;
}

std::vector<float> values_of_all_kinds() {
  std::mt19937 random(11);
  std::vector<float> values{0.0F,
                            -0.0F,
                            1.0F,
                            -1.0F,
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            std::bit_cast<float>(0x3f808000U),  // halfway, to an odd number
                            std::bit_cast<float>(0x3f818000U),  // halfway, to an even one
                            std::bit_cast<float>(0xbf807fffU),
                            std::bit_cast<float>(0xbf808001U)};
  while (values.size() < static_cast<size_t>(kHalfRows * kHalfColumns)) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

template <typename T>
std::string raw_bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A weight in two boxes of columns, and its master as remainders in three runs.
struct StoredHalves {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  std::vector<float> values = values_of_all_kinds();
  Catalog source;
  Plan plan;

  explicit StoredHalves(DType stored) {
    source.file_system = files;
    std::string left, right, lower;
    for (int64_t i = 0; i < kHalfRows * kHalfColumns; ++i) {
      const TwoHalves halves = halves_of(values[static_cast<size_t>(i)]);
      std::string& upper = i % kHalfColumns < 9 ? left : right;
      upper.append(reinterpret_cast<const char*>(&halves.upper), 2);
      const auto number = static_cast<float>(halves.lower);
      stored == DType::i16 ? lower.append(reinterpret_cast<const char*>(&halves.lower), 2)
                           : lower.append(reinterpret_cast<const char*>(&number), 4);
    }
    const uint64_t size = stored == DType::i16 ? 2 : 4;
    const uint32_t file = source.add_file("in", left.size() + right.size() + lower.size());
    files->put("in", left + right + lower);
    files->create_folder("out");
    const Box first{{0, 0}, {kHalfRows, 9}}, second{{0, 9}, {kHalfRows, kHalfColumns - 9}};
    Entry weight{"w", DType::bf16, kHalfShape, {}};
    weight.chunks.push_back({{first}, {}, {file, 0, left.size()}});
    weight.chunks.push_back({{second}, {}, {file, left.size(), right.size()}});
    Entry master{"optimizer.state.param.w", DType::f32, kHalfShape, {}, Role::optimizer};
    master.remainders = Remainders{stored, 0};
    uint64_t at = left.size() + right.size();
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{0, 100}, {100, 333}, {433, kHalfRows * kHalfColumns - 433}}) {
      const uint64_t bytes = static_cast<uint64_t>(count) * size;
      master.chunks.push_back(
          {{Box::whole(kHalfShape), 0, 0, begin, count}, {}, {file, at, bytes}});
      at += bytes;
    }
    source.entries = {std::move(weight), std::move(master)};
    plan.source = SharedCatalog::borrow(source);
    plan.dropped = {{0, kHalfRows * kHalfColumns}, {1, 0}};
  }

  template <typename T>
  std::vector<T> run(DType dtype, const Dims& shape, Recipe recipe) {
    const auto bytes = static_cast<uint64_t>(element_count(shape, "out")) * sizeof(T);
    plan.target.add_file("data", bytes);
    plan.target.entries = {{"out", dtype, shape, {{{Box::whole(shape)}, {}, {0, 0, bytes}}}}};
    plan.recipes = {std::move(recipe)};
    check(plan);
    EngineOptions options;
    options.threads = 2;
    options.memory_bytes = 1200;  // a few rows a tile
    ferry::run(plan, *files, "out", options);
    const std::string out = files->get("out/data");
    std::vector<T> read(out.size() / sizeof(T));
    std::memcpy(read.data(), out.data(), out.size());
    return read;
  }
};

class StoredRemainders : public testing::TestWithParam<DType> {};

TEST_P(StoredRemainders, WithTheirWeightAreTheMasterBitForBit) {
  StoredHalves world(GetParam());
  const auto read = world.run<float>(DType::f32, kHalfShape, {{1}, {copy_all(kHalfShape)}, {}});
  EXPECT_EQ(raw_bytes_of(read), raw_bytes_of(world.values));
}

// Rows from 5 on, transposed, after a column of zeros.
TEST_P(StoredRemainders, AreMovedAsAnyTensor) {
  StoredHalves world(GetParam());
  const int64_t rows = kHalfRows - 5;
  const Move move{0, {5, 0}, {0, 1}, {{rows, 0, 1, 1, 1}, {kHalfColumns, 1, 1, 0, 1}}};
  world.plan.dropped.push_back({1, 5 * kHalfColumns});
  const auto read = world.run<float>(DType::f32, {kHalfColumns, rows + 1},
                                     {{1}, {move}, {{{0, 0}, {kHalfColumns, 1}}}});
  for (int64_t column = 0; column < kHalfColumns; ++column) {
    const auto at = static_cast<size_t>(column * (rows + 1));
    EXPECT_EQ(read[at], 0);
    for (int64_t row = 0; row < rows; ++row) {
      const float expected = world.values[static_cast<size_t>((row + 5) * kHalfColumns + column)];
      ASSERT_EQ(std::bit_cast<uint32_t>(read[at + 1 + static_cast<size_t>(row)]),
                std::bit_cast<uint32_t>(expected));
    }
  }
}

TEST_P(StoredRemainders, AreTheLowerHalfAndTheirWeightTheUpperOne) {
  StoredHalves lower(GetParam()), upper(GetParam());
  const auto low = lower.run<int16_t>(DType::i16, kHalfShape,
                                      {{1}, {copy_all(kHalfShape)}, {}, FloatHalf::lower});
  const auto up = upper.run<uint16_t>(DType::bf16, kHalfShape,
                                      {{1}, {copy_all(kHalfShape)}, {}, FloatHalf::upper});
  for (size_t i = 0; i < low.size(); ++i) {
    ASSERT_EQ(low[i], halves_of(lower.values[i]).lower);
    ASSERT_EQ(up[i], halves_of(lower.values[i]).upper);
  }
}

TEST_P(StoredRemainders, AreScannedAsTheMaster) {
  const StoredHalves world(GetParam());
  std::string read;
  scan(world.source, world.source.entries[1], 1 << 20, [&](std::span<const std::byte> bytes) {
    read.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_EQ(read, raw_bytes_of(world.values));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StoredRemainders, testing::Values(DType::i16, DType::f32),
                         [](const auto& one) { return std::string(torch_name(one.param)); });

// From fp32 master weights.
TEST(MastersInHalves, AreWhatTheOptimizerKeeps) {
  const auto halves_of_masters = [](StoredHalves& world) {
    world.source.entries[1].remainders.reset();
    world.files->put("in", std::string(static_cast<size_t>(kHalfRows * kHalfColumns * 2), '\0') +
                               raw_bytes_of(world.values));
  };
  StoredHalves lower(DType::f32), upper(DType::f32);
  halves_of_masters(lower);
  halves_of_masters(upper);
  const auto low = lower.run<int16_t>(DType::i16, kHalfShape,
                                      {{1}, {copy_all(kHalfShape)}, {}, FloatHalf::lower});
  const auto up = upper.run<uint16_t>(DType::bf16, kHalfShape,
                                      {{1}, {copy_all(kHalfShape)}, {}, FloatHalf::upper});
  for (size_t i = 0; i < low.size(); ++i) {
    ASSERT_EQ(low[i], halves_of(lower.values[i]).lower);
    ASSERT_EQ(up[i], halves_of(upper.values[i]).upper);
  }
}

std::string failure_of_halves(StoredHalves& world, DType dtype, FloatHalf half) {
  try {
    world.run<float>(dtype, kHalfShape, {{1}, {copy_all(kHalfShape)}, {}, half});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BadRemainders, AreRefusedByName) {
  for (const float bad : {0.5F, 32768.0F, -32769.0F, std::numeric_limits<float>::quiet_NaN()}) {
    StoredHalves world(DType::f32);
    std::string bytes = world.files->get("in");
    std::memcpy(bytes.data() + bytes.size() - 40, &bad, sizeof bad);
    world.files->put("in", bytes);
    EXPECT_THAT(failure_of_halves(world, DType::f32, FloatHalf::whole),
                testing::HasSubstr("tensor optimizer.state.param.w: holds values that are no"));
  }
}

TEST(BadRemainders, OfNoBf16TensorOfTheShapeAreNone) {
  StoredHalves world(DType::i16);
  world.source.entries[0].dtype = DType::f16;
  EXPECT_THAT(failure_of_halves(world, DType::f32, FloatHalf::whole),
              testing::HasSubstr("remainders of no bf16 tensor"));
}

TEST(BadRemainders, MakeFp32Only) {
  StoredHalves world(DType::i16);
  EXPECT_THAT(failure_of_halves(world, DType::f64, FloatHalf::whole),
              testing::HasSubstr("which make F32"));
}

}  // namespace
}  // namespace ferry
