// Inputs whose elements lie in codes and scales: moved in every way, against the plain formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

uint16_t rounded_to_bf16(float value) {
  uint16_t bits = 0;
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32,
          reinterpret_cast<std::byte*>(&bits), 0, DType::bf16, 1);
  return bits;
}

// A quantised tensor of three axes, its parts one after the other in one file.
struct CodedTensor {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Quantised form;
  Dims shape;  // of the codes
  std::string bytes;
  std::vector<uint8_t> codes;  // one a code
  std::vector<float> scales, zeros, global;
  std::mt19937 random{7};

  CodedTensor(Code code, DType stored, Dims of, Dims block) : shape(std::move(of)) {
    form.code = code;
    form.block = std::move(block);
    form.codes = part("w", stored, shape);
    const int64_t count = element_count(shape, "w");
    const int64_t columns = shape.back(), per = form.codes_per_element();
    form.codes.shape.back() = (columns + per - 1) / per;
    for (int64_t i = 0; i < count; ++i) {
      codes.push_back(
          static_cast<uint8_t>(bits() == 4 ? random() % 16 : random() % 120 + random() % 2 * 128));
    }
    const int64_t row_bytes = form.codes.shape.back() * size_bytes(stored);
    for (int64_t row = 0; row < count / columns; ++row) {
      std::string line(static_cast<size_t>(row_bytes), '\0');
      for (int64_t i = 0; i < columns; ++i) {
        const uint8_t value = codes[static_cast<size_t>(row * columns + i)];
        const int64_t at = i * bits() / 8, shift = i * bits() % 8;
        line[static_cast<size_t>(at)] =
            static_cast<char>(line[static_cast<size_t>(at)] | value << shift);
      }
      bytes += line;
    }
    place(form.codes, 0);
    add_scales();
  }

  int64_t bits() const { return form.code == Code::e2m1 || form.code == Code::u4 ? 4 : 8; }
  static Entry part(const char* name, DType dtype, const Dims& dims) {
    return {name, dtype, dims, {}};
  }
  void place(Entry& entry, size_t begin) const {
    entry.chunks = {{{Box::whole(entry.shape)}, {}, {0, begin, bytes.size() - begin}}};
  }
  Dims grid() const { return block_grid(shape, form.block); }

  void add_scales() {
    form.scales = part("w_scale", DType::f32, grid());
    const size_t begin = bytes.size();
    for (int64_t i = 0; i < form.scales.elements(); ++i) {
      scales.push_back(0.001F * static_cast<float>(random() % 5000 + 1));
    }
    bytes.append(reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float));
    place(form.scales, begin);
  }

  void add_global(bool divides) {
    form.global = part("w_scale_2", DType::f32, {shape[0]});
    form.divides = divides;
    const size_t begin = bytes.size();
    for (int64_t i = 0; i < shape[0]; ++i) global.push_back(0.3F * static_cast<float>(i + 1));
    bytes.append(reinterpret_cast<const char*>(global.data()), global.size() * sizeof(float));
    place(*form.global, begin);
  }

  // Zero points of 4 bits, eight rows of blocks in a word.
  void add_zeros() {
    Dims dims = grid();
    const int64_t rows = dims[1], columns = dims[2];
    dims[1] = (rows + 7) / 8;
    form.zeros = part("w_zero", DType::i32, dims);
    const size_t begin = bytes.size();
    std::vector<uint32_t> words(static_cast<size_t>(element_count(dims, "w_zero")));
    for (int64_t i = 0; i < element_count(grid(), "w_zero"); ++i) {
      const uint32_t zero = random() % 16;
      const int64_t outer = i / columns / rows, row = i / columns % rows, column = i % columns;
      zeros.push_back(static_cast<float>(zero));
      words[static_cast<size_t>((outer * dims[1] + row / 8) * columns + column)] |=
          zero << 4 * (row % 8);
    }
    bytes.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t));
    place(*form.zeros, begin);
  }

  float code_value(uint8_t code) const {
    constexpr float kE2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    if (form.code == Code::e2m1) return (code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7];
    if (form.code != Code::element) return code;
    const auto byte = static_cast<std::byte>(code);
    return static_cast<float>(load_as_double(&byte, form.codes.dtype));
  }

  // At coordinates of the codes.
  uint16_t expected(int64_t a, int64_t b, int64_t c) const {
    const Dims in = grid();
    const auto block = static_cast<size_t>((a / form.block[0] * in[1] + b / form.block[1]) * in[2] +
                                           c / form.block[2]);
    float scale = scales[block];
    if (!global.empty()) {
      const float by = global[static_cast<size_t>(a)];
      scale = form.divides ? scale / by : scale * by;
    }
    const float zero = zeros.empty() ? form.zero : zeros[block];
    const auto at = static_cast<size_t>((a * shape[1] + b) * shape[2] + c);
    return rounded_to_bf16((code_value(codes[at]) - zero) * scale);
  }

  // The output that `recipe` makes, as bf16.
  std::vector<uint16_t> run(const Dims& out, Recipe recipe, uint64_t memory_bytes) {
    files = std::make_shared<MemoryFileSystem>();
    files->put("in", bytes);
    files->create_folder("out");
    source.file_system = files;
    if (source.files.empty()) source.add_file("in", bytes.size());
    Entry values{"w", DType::bf16, form.in_codes(shape), {}};
    values.quantised = std::make_shared<const Quantised>(form);
    source.entries = {values};
    Plan plan;
    plan.source = SharedCatalog::borrow(source);
    const auto target_bytes = static_cast<uint64_t>(element_count(out, "out")) * 2;
    plan.target.add_file("data", target_bytes);
    plan.target.entries = {
        {"out", DType::bf16, out, {{{Box::whole(out)}, {}, {0, 0, target_bytes}}}}};
    int64_t left = element_count(shape, "w");
    for (const Move& move : recipe.moves) left -= move.elements();
    if (left != 0) plan.dropped.push_back({0, left});
    plan.recipes = {std::move(recipe)};
    check(plan);
    EngineOptions options;
    options.threads = 2;
    options.memory_bytes = memory_bytes;
    ferry::run(plan, *files, "out", options);
    const std::string data = files->get("out/data");
    std::vector<uint16_t> result(data.size() / 2);
    std::memcpy(result.data(), data.data(), data.size());
    return result;
  }

  std::string failure() {
    try {
      run(form.in_codes(shape), {{0}, {copy_all(form.in_codes(shape))}, {}}, 1 << 20);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

std::vector<CodedTensor> coded_tensors() {
  std::vector<CodedTensor> all;
  all.emplace_back(Code::element, DType::f8_e4m3, Dims{3, 21, 13}, Dims{1, 8, 4});
  all.emplace_back(Code::element, DType::f8_e5m2, Dims{2, 9, 8}, Dims{2, 9, 8});
  all.emplace_back(Code::element, DType::i8, Dims{2, 9, 8}, Dims{1, 1, 8});
  all.emplace_back(Code::e2m1, DType::u8, Dims{2, 10, 64}, Dims{1, 1, 16});
  all.back().add_global(false);
  all.emplace_back(Code::e2m1, DType::f4x2, Dims{2, 7, 34}, Dims{1, 1, 32});
  all.back().add_global(true);
  all.emplace_back(Code::u4, DType::i32, Dims{2, 19, 36}, Dims{1, 1, 12});
  all.back().add_zeros();
  all.emplace_back(Code::u4, DType::i32, Dims{1, 5, 13}, Dims{1, 1, 13});
  all.back().form.zero = 8;
  all.emplace_back(Code::u8, DType::i32, Dims{1, 5, 10}, Dims{1, 1, 5});
  all.back().form.zero = 128;
  all.emplace_back(Code::e2m1, DType::u8, Dims{3, 12, 32}, Dims{1, 1, 32});
  all.back().form.transposed = true;
  return all;
}

constexpr uint64_t kCodeBudgets[] = {600, 20 << 10, 8 << 20};

TEST(QuantisedRead, EveryElementIsItsCodeTimesItsScale) {
  for (CodedTensor& world : coded_tensors()) {
    const Dims out = world.form.in_codes(world.shape);
    for (const uint64_t memory : kCodeBudgets) {
      const auto values = world.run(out, {{0}, {copy_all(out)}, {}}, memory);
      size_t at = 0;
      for (int64_t a = 0; a < out[0]; ++a) {
        for (int64_t b = 0; b < out[1]; ++b) {
          for (int64_t c = 0; c < out[2]; ++c) {
            const bool swapped = world.form.transposed;
            ASSERT_EQ(values[at++], world.expected(a, swapped ? c : b, swapped ? b : c))
                << a << ' ' << b << ' ' << c << ' ' << memory;
          }
        }
      }
    }
  }
}

// Every second row, from a column on, transposed, after a column of zeros.
TEST(QuantisedRead, MovesCountInTheTensor) {
  for (CodedTensor& world : coded_tensors()) {
    if (world.form.transposed) continue;
    const int64_t rows = (world.shape[1] - 1) / 2, columns = world.shape[2] - 3;
    for (const uint64_t memory : kCodeBudgets) {
      Move move{0,
                {0, 1, 3},
                {0, 0, 1},
                {{world.shape[0], 0, 1, 0, 1}, {rows, 1, 2, 2, 1}, {columns, 2, 1, 1, 1}}};
      Recipe recipe{{0}, {move}, {{{0, 0, 0}, {world.shape[0], columns, 1}}}};
      const auto values = world.run({world.shape[0], columns, rows + 1}, recipe, memory);
      size_t at = 0;
      for (int64_t a = 0; a < world.shape[0]; ++a) {
        for (int64_t c = 0; c < columns; ++c) {
          ASSERT_EQ(values[at++], 0);
          for (int64_t b = 0; b < rows; ++b) {
            ASSERT_EQ(values[at++], world.expected(a, 1 + 2 * b, 3 + c))
                << a << ' ' << b << ' ' << c;
          }
        }
      }
    }
  }
}

TEST(QuantisedRead, ANumberIsAddedToTheExactValue) {
  CodedTensor world(Code::element, DType::f8_e4m3, {1, 2, 8}, {1, 2, 8});
  Recipe recipe{{0}, {copy_all(world.shape)}, {}};
  recipe.addends = {{0, 1.0}};
  const auto values = world.run(world.shape, recipe, 1 << 20);
  for (int64_t i = 0; i < 16; ++i) {
    const float exact = world.code_value(world.codes[static_cast<size_t>(i)]) * world.scales[0];
    EXPECT_EQ(values[static_cast<size_t>(i)], rounded_to_bf16(static_cast<float>(1.0 + exact)));
  }
}

TEST(QuantisedRead, ExponentsArePowersOfTwo) {
  CodedTensor world(Code::e2m1, DType::u8, {1, 1, 8}, {1, 1, 2});
  const std::string exponents("\x00\x7f\x80\xff", 4);
  world.form.scales.dtype = DType::u8;
  world.form.scales.chunks[0].extent.length = 4;
  world.bytes.replace(world.form.scales.chunks[0].extent.offset, 4, exponents);
  world.scales = {0x1p-127F, 1, 2, NAN};
  const auto values = world.run(world.shape, {{0}, {copy_all(world.shape)}, {}}, 1 << 20);
  for (int64_t c = 0; c < 6; ++c) {
    EXPECT_EQ(values[static_cast<size_t>(c)], world.expected(0, 0, c));
  }
  EXPECT_GT(values[6] & 0x7fff, 0x7f80);  // no number
}

// Parts that do not fit are refused before anything is read.
TEST(QuantisedRead, PartsMustFit) {
  using testing::HasSubstr;
  const auto failure = [](const std::function<void(CodedTensor&)>& change) {
    CodedTensor world(Code::u4, DType::i32, {2, 19, 36}, {1, 1, 12});
    world.add_global(true);
    world.add_zeros();
    change(world);
    return world.failure();
  };
  EXPECT_EQ(failure([](CodedTensor&) {}), "no error");
  const auto refused = [&](const char* why, const std::function<void(CodedTensor&)>& change) {
    EXPECT_THAT(failure(change), HasSubstr(why));
  };
  refused("blocks of [1, 1]", [](CodedTensor& world) { world.form.block = {1, 1}; });
  refused("blocks of [1, 1, 0]", [](CodedTensor& world) { world.form.block = {1, 1, 0}; });
  refused("does not fit blocks", [](CodedTensor& world) { world.form.block = {1, 1, 6}; });
  refused("its codes w (int32 of [2, 19, 5]) should be of [2, 19, 6]", [](CodedTensor& world) {
    world.shape.back() = 48;
    world.form.block.back() = 16;
  });
  refused("not a type of scales", [](CodedTensor& world) { world.form.scales.dtype = DType::i32; });
  refused("its zero points", [](CodedTensor& world) { world.form.zeros->dtype = DType::i64; });
  refused("its zero points", [](CodedTensor& world) { world.form.zeros->shape[1] = 19; });
  refused("its second scale", [](CodedTensor& world) { world.form.global->shape = {3}; });
  refused("are not codes", [](CodedTensor& world) {
    world.form.code = Code::element;
    world.form.codes.shape = {2, 19, 9};
  });
}

}  // namespace
}  // namespace ferry
