// Tensors that are quantised as they are written: the same bytes in any memory and by any number of
// threads, and near the values when they are read again. What the bytes are is tested against the
// programs that define the forms (tests/tools/hugging_face/quantised_test.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

struct Rule {
  QuantiseRule rule;
  Dims block;
  Code code;
  double error;  // of a value, of the largest
};

constexpr int64_t kValueRows = 77, kValueColumns = 192;

const Rule kRules[] = {{QuantiseRule::fp8, {32, 64}, Code::element, 0.04},
                       {QuantiseRule::fp8, {1, kValueColumns}, Code::element, 0.04},
                       {QuantiseRule::fp8_exponents, {32, 64}, Code::element, 0.07},
                       {QuantiseRule::fp8_tensor, {kValueRows, kValueColumns}, Code::element, 0.04},
                       {QuantiseRule::mxfp8, {1, 32}, Code::element, 0.07},
                       {QuantiseRule::mxfp4, {1, 32}, Code::e2m1, 0.25},
                       {QuantiseRule::mxfp4_up, {1, 32}, Code::e2m1, 0.25},
                       {QuantiseRule::nvfp4, {1, 16}, Code::e2m1, 0.2},
                       {QuantiseRule::nvfp4_divided, {1, 16}, Code::e2m1, 0.2},
                       {QuantiseRule::int4, {1, 64}, Code::u4, 0.1},
                       {QuantiseRule::int4_zeros, {1, 32}, Code::u4, 0.1}};

// A transposed matrix of fp32, and the plan that quantises it.
struct QuantisedTarget {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  std::vector<float> values;  // in the order of the target
  Catalog source;
  Plan plan;

  explicit QuantisedTarget(const Rule& rule) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> stored(kValueRows * kValueColumns);
    values.resize(stored.size());
    for (int64_t i = 0; i < kValueRows; ++i) {
      for (int64_t j = 0; j < kValueColumns; ++j) {
        const float value = normal(random);
        values[static_cast<size_t>(i * kValueColumns + j)] = value;
        stored[static_cast<size_t>(j * kValueRows + i)] = value;
      }
    }
    const uint64_t bytes = stored.size() * sizeof(float);
    files->put("in", std::string(reinterpret_cast<const char*>(stored.data()), bytes));
    source.file_system = files;
    source.add_file("in", bytes);
    const Dims shape{kValueColumns, kValueRows};
    source.entries = {{"w", DType::f32, shape, {{{Box::whole(shape)}, {}, {0, 0, bytes}}}}};
    plan.source = SharedCatalog::borrow(source);
    Quantise how;
    how.rule = rule.rule;
    how.shape = {kValueRows, kValueColumns};
    how.block = rule.block;
    how.values = DType::f32;
    const int64_t columns = blocks_in(kValueColumns, codes_per_element(rule.rule));
    add("w", codes_type(rule.rule), {kValueRows, columns});
    Recipe recipe{
        {0}, {{0, {0, 0}, {0, 0}, {{kValueColumns, 0, 1, 1, 1}, {kValueRows, 1, 1, 0, 1}}}}, {}};
    const Dims grid = block_grid(how.shape, how.block);
    plan.recipes.resize(1);
    for (const QuantisedOutput& part : parts_of(how)) {
      how.parts.push_back(static_cast<uint32_t>(plan.target.entries.size()));
      const bool zeros = part.kind == QuantisedOutput::zeros;
      add("part", part.dtype,
          part.kind == QuantisedOutput::global
              ? Dims{1}
              : Dims{zeros ? blocks_in(grid[0], 8) : grid[0], grid[1]});
      plan.recipes.emplace_back().is_scales = true;
    }
    recipe.quantise = how;
    plan.recipes[0] = recipe;
    check(plan);
  }

  void add(const char* name, DType dtype, const Dims& shape) {
    if (plan.target.files.empty()) plan.target.files.push_back({"data", 0});
    FileInfo& file = plan.target.files[0];
    const auto bytes = static_cast<uint64_t>(element_count(shape, name) * size_bytes(dtype));
    plan.target.entries.push_back(
        {name, dtype, shape, {{{Box::whole(shape)}, {}, {0, file.bytes, bytes}}}});
    file.bytes += bytes;
  }

  std::string run(uint64_t memory_bytes, int threads) {
    if (files->status("out").kind == PathKind::folder) files->remove_all("out");
    files->create_folder("out");
    EngineOptions options;
    options.memory_bytes = memory_bytes;
    options.threads = threads;
    ferry::run(plan, *files, "out", options);
    return files->get("out/data");
  }
};

TEST(QuantisedWrite, BytesDependOnNothingButValues) {
  for (const Rule& rule : kRules) {
    QuantisedTarget target(rule);
    const std::string expected = target.run(8 << 20, 1);
    EXPECT_TRUE(target.run(8 << 20, 3) == expected) << static_cast<int>(rule.rule);
    EXPECT_TRUE(target.run(20 << 10, 2) == expected) << static_cast<int>(rule.rule);
    EXPECT_TRUE(target.run(600, 1) == expected) << static_cast<int>(rule.rule);
  }
}

TEST(QuantisedWrite, ValuesComeBack) {
  for (const Rule& rule : kRules) {
    QuantisedTarget target(rule);
    target.run(8 << 20, 2);
    const Quantise& how = *target.plan.recipes[0].quantise;
    Catalog written = target.plan.target;
    written.file_system = target.files;
    written.files[0].path = "out/data";
    auto form = std::make_shared<Quantised>();
    form->code = rule.code;
    form->block = rule.block;
    form->codes = written.entries[0];
    form->zero = rule.rule == QuantiseRule::int4 ? 8 : 0;
    form->divides = rule.rule == QuantiseRule::nvfp4_divided;
    const auto parts = parts_of(how);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Entry& part = written.entries[how.parts[i]];
      if (parts[i].kind == QuantisedOutput::zeros) form->zeros = part;
      const bool is_only = parts.size() == 1;
      if (parts[i].kind == QuantisedOutput::scales || is_only) form->scales = part;
      if (parts[i].kind == QuantisedOutput::global && !is_only) form->global = part;
    }
    const Dims shape{kValueRows, kValueColumns};
    Entry values{"w", DType::f32, shape, {}};
    values.quantised = std::move(form);
    written.entries = {values};
    const std::string bytes = read_tensor(written, written.entries[0], 1 << 20);
    std::vector<float> back(bytes.size() / sizeof(float));
    std::memcpy(back.data(), bytes.data(), bytes.size());
    float largest = 0;
    for (const float value : target.values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < back.size(); ++i) {
      ASSERT_NEAR(back[i], target.values[i], rule.error * largest) << static_cast<int>(rule.rule);
    }
  }
}

// Weights with one number share the largest magnitude.
TEST(QuantisedWrite, SecondScalesAreShared) {
  Rule rule{QuantiseRule::nvfp4, {1, 16}, Code::e2m1, 0};
  QuantisedTarget target(rule);
  Plan& plan = target.plan;
  const uint32_t first = static_cast<uint32_t>(plan.target.entries.size());
  const std::vector<Entry> entries = plan.target.entries;
  for (const Entry& entry : entries) target.add("again", entry.dtype, entry.shape);
  plan.recipes.resize(6);
  plan.recipes[3] = plan.recipes[0];
  plan.recipes[4].is_scales = plan.recipes[5].is_scales = true;
  Recipe& second = plan.recipes[3];
  second.quantise->parts = {first + 1, first + 2};
  // The first row alone, which has smaller values, and zeros.
  second.moves[0].loops[1].count = 1;
  second.zeros = {{{1, 0}, {kValueRows - 1, kValueColumns}}};
  plan.dropped.push_back({0, -kValueColumns});
  check(plan);
  const auto global_of = [&](const std::string& data, uint32_t entry) {
    float value = 0;
    std::memcpy(&value, data.data() + plan.target.entries[entry].chunks[0].extent.offset, 4);
    return value;
  };
  const std::string together = target.run(8 << 20, 2);
  EXPECT_EQ(global_of(together, 2), global_of(together, first + 2));
  second.quantise->together = 7;
  const std::string apart = target.run(8 << 20, 2);
  EXPECT_EQ(global_of(apart, 2), global_of(together, 2));
  EXPECT_LT(global_of(apart, first + 2), global_of(apart, 2));
}

}  // namespace
}  // namespace ferry
