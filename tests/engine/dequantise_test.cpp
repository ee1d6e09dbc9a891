// Inputs quantised by blocks: moved in every way, against the plain formula.
#include "ckpt/engine/transfers/dequantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "ckpt/engine/transfers/transfer.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

constexpr int64_t kRows = 21, kColumns = 13;  // neither is a multiple of its block
constexpr int64_t kBlockRows = 8, kBlockColumns = 4;

float value_of(std::byte code) { return static_cast<float>(load_as_double(&code, DType::f8_e4m3)); }

uint16_t bf16(float value) {
  uint16_t bits = 0;
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32,
          reinterpret_cast<std::byte*>(&bits), 0, DType::bf16, 1);
  return bits;
}

// A weight of f8_e4m3 and its scales, one after the other in one file.
struct QuantisedMatrix {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
  std::string codes;
  std::vector<float> scales;

  QuantisedMatrix() {
    std::mt19937 random(7);
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      codes += static_cast<char>(random() % 126 + random() % 2 * 128);  // finite
    }
    for (int64_t i = 0; i < 3 * 4; ++i) {
      scales.push_back(0.001F * static_cast<float>(random() % 5000));
    }
    source.file_system = files;
    const uint64_t scale_bytes = scales.size() * sizeof(float);
    const uint32_t file = source.add_file("in", codes.size() + scale_bytes);
    add("w", DType::f8_e4m3, {kRows, kColumns}, {file, 0, codes.size()});
    add("w_scale_inv", DType::f32, {3, 4}, {file, codes.size(), scale_bytes});
    std::string bytes = codes;
    bytes.append(reinterpret_cast<const char*>(scales.data()), scale_bytes);
    files->put("in", bytes);
    files->create_folder("out");
    plan.source = SharedCatalog::borrow(source);
  }

  void add(const char* name, DType dtype, const Dims& shape, const Extent& extent) {
    source.entries.push_back({name, dtype, shape, {{{Box::whole(shape)}, {}, extent}}});
  }

  // The output that `recipe` makes, as bf16.
  std::vector<uint16_t> run(const Dims& shape, Recipe recipe) {
    const auto bytes = static_cast<uint64_t>(element_count(shape, "out")) * 2;
    plan.target.add_file("data", bytes);
    plan.target.entries = {{"out", DType::bf16, shape, {{{Box::whole(shape)}, {}, {0, 0, bytes}}}}};
    plan.recipes = {std::move(recipe)};
    check(plan);
    EngineOptions options;
    options.threads = 2;
    options.memory_bytes = 600;  // a few rows a tile
    ferry::run(plan, *files, "out", options);
    const std::string out = files->get("out/data");
    std::vector<uint16_t> values(out.size() / 2);
    std::memcpy(values.data(), out.data(), out.size());
    return values;
  }

  uint16_t expected(int64_t row, int64_t column) const {
    const auto code = static_cast<std::byte>(codes[static_cast<size_t>(row * kColumns + column)]);
    const auto block = static_cast<size_t>(row / kBlockRows * 4 + column / kBlockColumns);
    return bf16(value_of(code) * scales[block]);
  }

  std::string failure(Recipe recipe) {
    try {
      run({kRows, kColumns}, std::move(recipe));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

const BlockScales kScales{0, 1, {kBlockRows, kBlockColumns}};

TEST(Dequantise, EveryElementHasTheScaleOfItsBlock) {
  QuantisedMatrix world;
  const auto values =
      world.run({kRows, kColumns}, {{0}, {copy_all({kRows, kColumns})}, {}, {kScales}});
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)], world.expected(i / kColumns, i % kColumns)) << i;
  }
}

// Rows 5.. of the input, transposed, after a zero column: blocks are those of the input.
TEST(Dequantise, BlocksAreCountedInTheInput) {
  QuantisedMatrix world;
  const int64_t rows = kRows - 5;
  Move move{0, {5, 0}, {0, 1}, {{rows, 0, 1, 1, 1}, {kColumns, 1, 1, 0, 1}}};
  Recipe recipe{{0}, {move}, {{{0, 0}, {kColumns, 1}}}, {kScales}};
  world.plan.dropped.push_back({0, 5 * kColumns});
  const auto values = world.run({kColumns, rows + 1}, recipe);
  for (int64_t column = 0; column < kColumns; ++column) {
    const auto at = static_cast<size_t>(column * (rows + 1));
    EXPECT_EQ(values[at], 0);
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(values[at + 1 + static_cast<size_t>(row)], world.expected(row + 5, column));
    }
  }
}

TEST(Dequantise, ScalesMustFit) {
  QuantisedMatrix world;
  const auto recipe = [](const BlockScales& scales) {
    return Recipe{{0}, {copy_all({kRows, kColumns})}, {}, {scales}};
  };
  using testing::HasSubstr;
  EXPECT_THAT(world.failure(recipe({0, 1, {kBlockRows, 3}})), HasSubstr("does not fit blocks"));
  EXPECT_THAT(world.failure(recipe({0, 1, {kBlockRows, 0}})), HasSubstr("does not fit blocks"));
  EXPECT_THAT(world.failure(recipe({0, 1, {kBlockRows}})), HasSubstr("does not fit blocks"));
  EXPECT_THAT(world.failure(recipe({1, 1, {kBlockRows, kBlockColumns}})), HasSubstr("no input"));
  EXPECT_THAT(world.failure(recipe({0, 2, {kBlockRows, kBlockColumns}})), HasSubstr("no input"));
  world.source.entries[1].dtype = DType::i32;
  EXPECT_THAT(world.failure(recipe(kScales)), HasSubstr("cannot become bfloat16"));
}

// A square matrix whose blocks are of `block`: scales may be as many as elements.
struct SmallBlocks {
  static constexpr int64_t kExtent = 768;

  explicit SmallBlocks(const Dims& of) : block(of) {
    const int64_t rows = kExtent / block[0], columns = kExtent / block[1];
    std::string bytes(kExtent * kExtent, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(0x30 + i % 31);
    for (int64_t i = 0; i < rows * columns; ++i) {
      scales.push_back(static_cast<float>(i % 8191 + 1));
    }
    const uint64_t scale_bytes = scales.size() * sizeof(float);
    source.file_system = files;
    const uint32_t file = source.add_file("in", bytes.size() + scale_bytes);
    const auto add = [&](const char* name, DType dtype, const Dims& shape, const Extent& extent) {
      source.entries.push_back({name, dtype, shape, {{{Box::whole(shape)}, {}, extent}}});
    };
    add("w", DType::f8_e4m3, {kExtent, kExtent}, {file, 0, bytes.size()});
    add("w_scale_inv", DType::f32, {rows, columns}, {file, bytes.size(), scale_bytes});
    codes = bytes;
    files->put("in", bytes.append(reinterpret_cast<const char*>(scales.data()), scale_bytes));
    files->create_folder("out");
    plan.source = SharedCatalog::borrow(source);
    constexpr uint64_t kOutBytes = kExtent * kExtent * 2;
    plan.target.add_file("data", kOutBytes);
    const Dims shape{kExtent, kExtent};
    plan.target.entries = {
        {"out", DType::bf16, shape, {{{Box::whole(shape)}, {}, {0, 0, kOutBytes}}}}};
    plan.recipes = {{{0}, {copy_all(shape)}, {}, {{0, 1, block}}}};
    check(plan);
  }

  uint16_t expected(int64_t row, int64_t column) const {
    const auto code = static_cast<std::byte>(codes[static_cast<size_t>(row * kExtent + column)]);
    const int64_t at = row / block[0] * (kExtent / block[1]) + column / block[1];
    return bf16(value_of(code) * scales[static_cast<size_t>(at)]);
  }

  Dims block;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
  std::string codes;
  std::vector<float> scales;
};

TEST(Dequantise, BlocksMayBeOfOneElement) {
  for (const Dims& block : {Dims{1, 1}, Dims{1, 3}, Dims{256, 1}}) {
    SmallBlocks world(block);
    EngineOptions options;
    options.threads = 2;
    options.memory_bytes = 1 << 20;
    ferry::run(world.plan, *world.files, "out", options);
    const std::string out = world.files->get("out/data");
    for (int64_t i = 0; i < SmallBlocks::kExtent * SmallBlocks::kExtent; ++i) {
      uint16_t value = 0;
      std::memcpy(&value, out.data() + 2 * i, 2);
      ASSERT_EQ(value, world.expected(i / SmallBlocks::kExtent, i % SmallBlocks::kExtent)) << i;
    }
  }
}

// Every block is a transfer: parts keep them within the budget, and cover the box once.
TEST(Dequantise, SmallBlocksAreDoneInParts) {
  constexpr uint64_t kMemory = 256 << 10;
  for (const Dims& block : {Dims{1, 1}, Dims{1, 3}, Dims{256, 1}}) {
    SmallBlocks world(block);
    PlanCompiler compiler(world.plan);
    const Box box{{3, 5}, {400, 700}};
    int64_t elements = 0;
    for (const Box& part : compiler.parts(0, box, kMemory)) {
      const std::vector<Transfer> transfers = compiler.compile(0, part);
      EXPECT_LE(transfers.size() * sizeof(Transfer), kMemory);
      for (const Transfer& transfer : transfers) elements += transfer.elements();
    }
    EXPECT_EQ(elements, 400 * 700);
  }
  SmallBlocks world({128, 128});
  PlanCompiler compiler(world.plan);
  EXPECT_EQ(compiler.parts(0, {{3, 5}, {400, 700}}, kMemory).size(), 1u);
}

TEST(Dequantise, ManyScalesAreReadByTheBox) {
  SmallBlocks world({1, 1});
  ScaleReader reader(world.source);
  const ScaleBox scales = reader.read(1, {{5, 7}, {3, 4}}, world.source.entries[1].shape);
  EXPECT_EQ(scales.blocks, (Box{{5, 7}, {3, 4}}));
  ASSERT_EQ(scales.values->size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ((*scales.values)[i], world.scales[(5 + i / 4) * SmallBlocks::kExtent + 7 + i % 4]);
  }
  SmallBlocks few({256, 1});
  EXPECT_EQ(
      ScaleReader(few.source).read(1, {{1, 7}, {1, 4}}, few.source.entries[1].shape).values->size(),
      few.scales.size());
}

// An element read as it is would be wrong by its scale: the scales that nobody reads are noticed.
TEST(Dequantise, ForgottenScalesAreLost) {
  QuantisedMatrix world;
  EXPECT_THAT(world.failure({{0}, {copy_all({kRows, kColumns})}, {}, {}}),
              testing::HasSubstr("w_scale_inv of shape [3, 4]: the target uses 0"));
}

}  // namespace
}  // namespace ferry
