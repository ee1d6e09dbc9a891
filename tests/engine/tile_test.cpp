// Large tensors, whose tiles are read in strips, cut along both axes, or read in place.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ckpt/base/cast.h"
#include "ckpt/engine/run.h"
#include "ckpt/engine/tiles/tile_cut.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

void expect_cover(const Dims& shape, int64_t max_elements, int64_t max_columns) {
  const std::vector<Box> tiles = cut_into_tiles(shape, max_elements, max_columns);
  Entry entry{"cover", DType::u8, shape, {}, Role::model};
  Catalog catalog;
  catalog.add_file("a", 1 << 20);
  for (const Box& tile : tiles) {
    const int64_t count = element_count(tile.size, "tile");
    EXPECT_LE(count, max_elements);
    EXPECT_LE(tile.size.back(), max_columns);
    entry.chunks.push_back({{tile}, {}, {0, 0, static_cast<uint64_t>(count)}});
  }
  EXPECT_NO_THROW(check_chunks(catalog, entry));
}

TEST(Tiles, CoverATensorOnce) {
  for (const int64_t most : {1, 5, 12, 100, 10000}) {
    for (const int64_t columns : {1, 4, 7, 100}) {
      expect_cover({7, 5, 11}, most, columns);
      expect_cover({1, 30}, most, columns);
      expect_cover({17}, most, columns);
    }
  }
  EXPECT_EQ(cut_into_tiles({}, 1).size(), 1u);
}

// A target made of moves of one bf16 source, whose element n holds n's lower bits, and what each of
// its elements comes from.
struct MovesJob {
  MovesJob(Dims source_shape, Dims target_shape, std::vector<Move> moves, DType out = DType::bf16)
      : shape(std::move(target_shape)) {
    const auto count = static_cast<uint64_t>(element_count(source_shape, "test"));
    content.resize(count);
    for (uint64_t i = 0; i < count; ++i)
      content[i] = static_cast<uint16_t>(i * 40503 >> 4 & 0x3fff);
    memory->put("src", {reinterpret_cast<const char*>(content.data()), 2 * count});
    memory->create_folder("out");
    source.file_system = memory;
    source.add_file("src", 2 * count);
    source.entries.push_back({"a", DType::bf16, source_shape, {}, Role::model});
    source.entries[0].chunks.push_back({{Box::whole(source_shape)}, {}, {0, 0, 2 * count}});
    plan.source = SharedCatalog::borrow(source);
    const auto bytes = static_cast<uint64_t>(element_count(shape, "test") * size_bytes(out));
    plan.target.files.push_back({"t", bytes});
    plan.target.entries.push_back({"t", out, shape, {}, Role::model});
    plan.target.entries[0].chunks.push_back({{Box::whole(shape)}, {}, {0, 0, bytes}});
    plan.recipes.push_back({{0}, std::move(moves), {}});
    check(plan);
  }

  // The target, as 16-bit elements.
  std::vector<uint16_t> run_with(uint64_t memory_bytes, int threads) {
    memory->remove_all("out/t");
    EngineOptions options;
    options.memory_bytes = memory_bytes;
    options.threads = threads;
    run(plan, *memory, "out", options);
    const std::string bytes = memory->get("out/t");
    std::vector<uint16_t> values(bytes.size() / 2);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  std::vector<uint16_t> content;
  Dims shape;
  Catalog source;
  Plan plan;
};

constexpr uint64_t kBudgets[] = {10 << 10, 1 << 20, 7 << 20, 256 << 20};

TEST(Tiles, TransposeLargeMatrices) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1500, 2100}, {260, 30000}, {30000, 130}, {2048, 1024}}) {
    MovesJob job({rows, columns}, {columns, rows},
                 {{0, {0, 0}, {0, 0}, {{rows, 0, 1, 1, 1}, {columns, 1, 1, 0, 1}}}});
    std::vector<uint16_t> expected(job.content.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        expected[static_cast<size_t>(c * rows + r)] =
            job.content[static_cast<size_t>(r * columns + c)];
      }
    }
    for (const uint64_t budget : kBudgets) {
      EXPECT_EQ(job.run_with(budget, 2), expected) << rows << " x " << columns << ", " << budget;
    }
  }
}

TEST(Tiles, TransposeAndConvert) {
  const int64_t rows = 1100, columns = 900;
  MovesJob job({rows, columns}, {columns, rows},
               {{0, {0, 0}, {0, 0}, {{rows, 0, 1, 1, 1}, {columns, 1, 1, 0, 1}}}}, DType::f32);
  std::vector<uint16_t> expected(2 * job.content.size());  // a bf16 is the upper half of an f32
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      expected[static_cast<size_t>(2 * (c * rows + r) + 1)] =
          job.content[static_cast<size_t>(r * columns + c)];
    }
  }
  for (const uint64_t budget : kBudgets) EXPECT_EQ(job.run_with(budget, 2), expected) << budget;
}

// Rows of heads take turns: long runs, read in place; with few columns, read together.
TEST(Tiles, InterleaveRows) {
  for (const int64_t columns : {2500, 30}) {
    const int64_t heads = 12;
    MovesJob job(
        {heads * 128, columns}, {heads * 128, columns},
        {{0,
          {0, 0},
          {0, 0},
          {{heads, 0, 128, 0, 128}, {2, 0, 64, 0, 1}, {64, 0, 1, 0, 2}, {columns, 1, 1, 1, 1}}}});
    std::vector<uint16_t> expected;
    for (int64_t row = 0; row < heads * 128; ++row) {
      const int64_t from = row / 128 * 128 + row % 2 * 64 + row % 128 / 2;
      const auto begin = job.content.begin() + from * columns;
      expected.insert(expected.end(), begin, begin + columns);
    }
    for (const uint64_t budget : kBudgets) EXPECT_EQ(job.run_with(budget, 2), expected) << budget;
  }
}

// The columns of two halves side by side, from rows of both: several transfers share what is read.
TEST(Tiles, JoinColumnsOfSharedRows) {
  const int64_t rows = 700, columns = 300;
  std::vector<Move> moves;
  for (int64_t part = 0; part < 3; ++part) {
    moves.push_back(
        {0, {0, part * 100}, {part * rows, 0}, {{rows, 0, 1, 0, 1}, {100, 1, 1, 1, 1}}});
  }
  MovesJob job({rows, columns}, {3 * rows, 100}, moves);
  std::vector<uint16_t> expected;
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = job.content.begin() + row * columns + part * 100;
      expected.insert(expected.end(), begin, begin + 100);
    }
  }
  for (const uint64_t budget : kBudgets) EXPECT_EQ(job.run_with(budget, 2), expected) << budget;
}

}  // namespace
}  // namespace ferry
