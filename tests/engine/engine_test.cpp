// Plans over random tensors, stored in random chunks, against a plain element-by-element model.
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "ckpt/base/box.h"
#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// All index tuples of a shape, in row-major order.
std::vector<Dims> indices(const Dims& shape) {
  std::vector<Dims> all;
  if (element_count(shape, "test") == 0) return all;
  Dims at(shape.size(), 0);
  for (;;) {
    all.push_back(at);
    size_t axis = shape.size();
    while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return all;
  }
}

int64_t flat(const Dims& index, const Dims& shape) {
  int64_t position = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    position = position * shape[axis] + index[axis];
  return position;
}

std::vector<Box> random_grid(Random& random, const Dims& shape) {
  std::vector<Box> boxes{Box::whole(shape)};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<Box> next;
    const int64_t step = pick(random, 1, shape[axis]);
    for (const Box& box : boxes) {
      for (int64_t at = 0; at < shape[axis]; at += step) {
        Box part = box;
        part.offset[axis] = at;
        part.size[axis] = std::min(step, shape[axis] - at);
        next.push_back(part);
      }
    }
    boxes = next;
  }
  return boxes;
}

// One source tensor `values` (u32, row-major), the plan that reads it and where both live.
struct World {
  explicit World(uint64_t seed) : random(seed) {
    source.file_system = memory;
    plan.source = SharedCatalog::borrow(source);
    memory->create_folder("out");
  }

  void fill(const Dims& shape) {
    values.resize(static_cast<size_t>(element_count(shape, "test")));
    std::iota(values.begin(), values.end(), 1u);
  }

  // Stores `values` as chunks: row-major boxes, column-major boxes, or runs of boxes.
  void store(const std::string& name, const Dims& shape) {
    fill(shape);
    source.entries.push_back({name, DType::u32, shape, {}, Role::model});
    for (const Box& box : random_grid(random, shape)) {
      std::vector<uint32_t> elements;
      for (Dims index : indices(box.size)) {
        for (size_t axis = 0; axis < shape.size(); ++axis) index[axis] += box.offset[axis];
        elements.push_back(values[static_cast<size_t>(flat(index, shape))]);
      }
      switch (pick(random, 0, 2)) {
        case 0:
          add_chunk({{box}, {}, {}}, elements);
          break;
        case 1:
          store_column_major(box, elements);
          break;
        default:
          store_runs(box, elements);
      }
    }
    check_chunks(source, source.entries.back());
  }

  void store_column_major(const Box& box, const std::vector<uint32_t>& elements) {
    Dims strides(box.size.size());
    int64_t stride = 1;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      strides[axis] = stride;
      stride *= box.size[axis];
    }
    std::vector<uint32_t> permuted(elements.size());
    size_t i = 0;
    for (const Dims& index : indices(box.size)) {
      const int64_t at =
          std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
      permuted[static_cast<size_t>(at)] = elements[i++];
    }
    add_chunk({{box}, strides, {}}, permuted);
  }

  void store_runs(const Box& box, const std::vector<uint32_t>& elements) {
    const auto count = static_cast<int64_t>(elements.size());
    for (int64_t begin = 0; begin < count;) {
      const int64_t length = pick(random, 1, count - begin);
      add_chunk({{box, 0, 0, begin, length}, {}, {}},
                {elements.begin() + begin, elements.begin() + begin + length});
      begin += length;
    }
  }

  void add_chunk(Chunk chunk, const std::vector<uint32_t>& stored) {
    const std::string path = "src/" + std::to_string(source.files.size());
    const auto junk = static_cast<uint64_t>(pick(random, 0, 9));
    std::string content(junk, 'x');
    content.append(reinterpret_cast<const char*>(stored.data()), stored.size() * 4);
    memory->put(path, content);
    chunk.extent.file = source.add_file(path, content.size());
    chunk.extent.length = content.size();
    chunk.extent.payload_offset = junk;
    source.entries.back().chunks.push_back(chunk);
  }

  void add_target(const std::string& name, const Dims& shape, Recipe recipe) {
    Entry target{name, DType::u32, shape, {}, Role::model};
    for (const Box& box : random_grid(random, shape)) {
      const auto bytes = static_cast<uint64_t>(element_count(box.size, "test") * 4);
      const auto junk = static_cast<uint64_t>(pick(random, 0, 5));
      const auto file = static_cast<uint32_t>(plan.target.files.size());
      plan.target.files.push_back({"f" + std::to_string(file), junk + bytes});
      if (junk) plan.literals.push_back({file, 0, std::string(junk, 'h')});
      target.chunks.push_back({{box}, {}, {file, junk, bytes}});
    }
    plan.target.entries.push_back(std::move(target));
    plan.recipes.push_back(std::move(recipe));
  }

  Catalog execute() {
    check(plan);
    EngineOptions options;
    options.threads = static_cast<int>(pick(random, 1, 3));
    options.memory_bytes = static_cast<uint64_t>(pick(random, 1, 4000));
    run(plan, *memory, "out", options);
    Catalog result = plan.target;
    result.file_system = memory;
    for (FileInfo& file : result.files) file.path = "out/" + file.path;
    return result;
  }

  Random random;
  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
  std::vector<uint32_t> values;
};

std::vector<uint32_t> read_u32(const Catalog& catalog, const Entry& entry) {
  const std::string bytes = read_tensor(catalog, entry, 1 << 20);
  std::vector<uint32_t> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Engine, RandomCopiesOfRandomChunks) {
  test::for_random_cases(300, [](uint64_t seed) {
    World world(seed);
    Dims shape(static_cast<size_t>(pick(world.random, 0, 4)));
    for (int64_t& extent : shape) extent = pick(world.random, 1, 7);
    world.store("a", shape);
    world.add_target("a", shape, {{0}, {copy_all(shape)}, {}});
    const Catalog result = world.execute();
    EXPECT_EQ(read_u32(result, result.entries[0]), world.values);
    for (const Literal& literal : world.plan.literals) {
      const std::string content = world.memory->get(result.files[literal.file].path);
      EXPECT_EQ(content.substr(0, literal.bytes.size()), literal.bytes);
    }
  });
}

// [groups x (queries + 2) x head, hidden] -> q, k, v, and back by the inverse moves.
TEST(Engine, QkvSplitsAndJoinsAgain) {
  test::for_random_cases(100, [](uint64_t seed) {
    World split(seed);
    const int64_t groups = pick(split.random, 1, 3), queries = pick(split.random, 1, 3);
    const int64_t head = pick(split.random, 1, 4), hidden = pick(split.random, 1, 5);
    const int64_t block = (queries + 2) * head;
    const Dims shape{groups * block, hidden};
    const int64_t rows[] = {queries * head, head, head};
    const int64_t starts[] = {0, queries * head, (queries + 1) * head};
    split.store("qkv", shape);
    Recipe joined;
    for (uint32_t part = 0; part < 3; ++part) {
      Move move{0, {starts[part], 0}, {0, 0}, {}};
      move.loops = {
          {groups, 0, block, 0, rows[part]}, {rows[part], 0, 1, 0, 1}, {hidden, 1, 1, 1, 1}};
      split.add_target(std::string(1, "qkv"[part]), {groups * rows[part], hidden},
                       {{0}, {move}, {}});
      joined.inputs.push_back(part);
      joined.moves.push_back(move.inverse());
      joined.moves.back().input = part;
    }
    const Catalog parts = split.execute();
    const auto q = read_u32(parts, parts.entries[0]);
    for (int64_t g = 0; g < groups; ++g) {
      EXPECT_EQ(q[static_cast<size_t>(g * rows[0] * hidden)], g * block * hidden + 1);
    }
    World join(seed);
    join.source = parts;
    join.memory = split.memory;
    join.memory->remove_all("out2");
    join.memory->create_folder("out2");
    join.add_target("qkv", shape, joined);
    check(join.plan);
    run(join.plan, *join.memory, "out2", {});
    Catalog again = join.plan.target;
    again.file_system = join.memory;
    for (FileInfo& file : again.files) file.path = "out2/" + file.path;
    EXPECT_EQ(read_u32(again, again.entries[0]), split.values);
  });
}

TEST(Engine, TransposesPadsAndCasts) {
  World world(0);
  std::vector<float> values(300 * 200);
  std::iota(values.begin(), values.end(), -1000.0f);
  world.memory->put("src/a",
                    std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  world.source.add_file("src/a", values.size() * 4);
  world.source.entries.push_back({"a", DType::f32, {300, 200}, {}, Role::model});
  world.source.entries[0].chunks.push_back(
      {{Box::whole({300, 200})}, {}, {0, 0, values.size() * 4}});
  Entry target{"t", DType::bf16, {210, 300}, {}, Role::model};
  world.plan.target.files.push_back({"t", 210 * 300 * 2});
  target.chunks.push_back({{Box::whole(target.shape)}, {}, {0, 0, 210 * 300 * 2}});
  world.plan.target.entries.push_back(target);
  const Move move{0, {0, 0}, {0, 0}, {{300, 0, 1, 1, 1}, {200, 1, 1, 0, 1}}};
  world.plan.recipes.push_back({{0}, {move}, {{{200, 0}, {10, 300}}}});
  check(world.plan);
  for (const uint64_t memory_bytes : {100u, 10000u, 100000000u}) {
    world.memory->remove_all("out");
    world.memory->create_folder("out");
    EngineOptions options;
    options.memory_bytes = memory_bytes;
    run(world.plan, *world.memory, "out", options);
    const std::string out = world.memory->get("out/t");
    for (size_t row : {0u, 77u, 199u, 205u}) {
      for (size_t column : {0u, 5u, 299u}) {
        const auto* at = reinterpret_cast<const std::byte*>(out.data()) + (row * 300 + column) * 2;
        const double expected = row < 200 ? values[column * 200 + row] : 0;
        EXPECT_NEAR(load_as_double(at, DType::bf16), expected, std::abs(expected) / 256)
            << row << ' ' << column;
      }
    }
  }
}

// What scan() meets, sorted.
std::vector<uint32_t> scanned(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes) {
  std::vector<uint32_t> seen;
  scan(catalog, entry, memory_bytes, [&](std::span<const std::byte> bytes) {
    EXPECT_EQ(bytes.size() % 4, 0u);
    const size_t before = seen.size();
    seen.resize(before + bytes.size() / 4);
    std::memcpy(seen.data() + before, bytes.data(), bytes.size());
  });
  std::sort(seen.begin(), seen.end());
  return seen;
}

TEST(Engine, ScanMeetsEveryElementOnce) {
  World world(7);
  world.store("a", {13, 17, 5});
  EXPECT_EQ(scanned(world.source, world.source.entries[0], 64), world.values);
}

TEST(Engine, ReadsElementsInsideZstdStreams) {
  World world(3);
  world.fill({50, 20});
  const std::string raw =
      "head" + std::string(reinterpret_cast<const char*>(world.values.data()), 4000);
  std::string packed(ZSTD_compressBound(raw.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), 3));
  world.memory->put("src/z", "junk" + packed);
  world.source.add_file("src/z", 4 + packed.size());
  Chunk chunk{{Box::whole({50, 20})}, {}, {0, 4, packed.size()}};
  chunk.extent.zstd = true;
  chunk.extent.payload_offset = 4;
  world.source.entries.push_back({"a", DType::u32, {50, 20}, {chunk}, Role::model});
  world.add_target("a", {50, 20}, {{0}, {copy_all({50, 20})}, {}});
  const Catalog result = world.execute();
  EXPECT_EQ(read_u32(result, result.entries[0]), world.values);
  EXPECT_EQ(read_u32(world.source, world.source.entries[0]), world.values);
  EXPECT_EQ(world.memory->list("out").size(), result.files.size());  // no spool is left
  EXPECT_EQ(scanned(world.source, world.source.entries[0], 4096), world.values);
}

TEST(Engine, DecodesNoMoreOfAStreamThanItsChunkNeeds) {
  World world(3);
  world.fill({50, 20});
  std::string raw(reinterpret_cast<const char*>(world.values.data()), 4000);
  raw.resize(64 << 20);  // a few kilobytes when compressed
  std::string packed(ZSTD_compressBound(raw.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), 3));
  world.memory->put("src/z", packed);
  world.source.add_file("src/z", packed.size());
  Chunk chunk{{Box::whole({50, 20})}, {}, {0, 0, packed.size()}};
  chunk.extent.zstd = true;
  chunk.extent.decoded_end = 4000;
  world.source.entries.push_back({"a", DType::u32, {50, 20}, {chunk}, Role::model});
  world.add_target("a", {50, 20}, {{0}, {copy_all({50, 20})}, {}});
  const FaultFileSystem counting(world.memory, 0, ErrorKind::io);
  world.memory->create_folder("counted");
  run(world.plan, counting, "counted", {});
  EXPECT_LT(counting.operations(), 60u);  // 64 MiB would be spooled in as many writes
}

TEST(Engine, ScanMeetsElementsThatLieInAnotherOrderOrApart) {
  for (const Dims& strides : {Dims{1, 10}, Dims{40, 2}}) {
    World world(1);
    std::vector<uint32_t> stored(400);
    std::iota(stored.begin(), stored.end(), 0u);
    world.memory->put("src/t", std::string(reinterpret_cast<const char*>(stored.data()), 1600));
    world.source.add_file("src/t", 1600);
    Chunk chunk{{Box::whole({10, 20})}, strides, {0, 0, 1600}};
    world.source.entries.push_back({"a", DType::u32, {10, 20}, {chunk}, Role::model});
    std::vector<uint32_t> expected;
    for (int64_t row = 0; row < 10; ++row) {
      for (int64_t column = 0; column < 20; ++column) {
        expected.push_back(static_cast<uint32_t>(row * strides[0] + column * strides[1]));
      }
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(scanned(world.source, world.source.entries[0], 4096), expected);
  }
}

TEST(Engine, StopsOnRequest) {
  World world(1);
  world.store("a", {100});
  world.add_target("a", {100}, {{0}, {copy_all({100})}, {}});
  const std::atomic<bool> cancel{true};
  EngineOptions options;
  options.cancel = &cancel;
  try {
    run(world.plan, *world.memory, "out", options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

}  // namespace
}  // namespace ferry
