// NaN and infinite values in bytes that pass by.
#include "ckpt/core/passing_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

using testing::ElementsAre;

// Every value of the types of one and two bytes.
TEST(NonFinite, AgreesWithTheValues) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2,
                            DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::f8_e8m0}) {
    const auto size = static_cast<size_t>(size_bytes(dtype));
    EXPECT_TRUE(may_be_non_finite(dtype));
    for (uint32_t bits = 0; bits < (1u << (8 * size)); ++bits) {
      std::array<std::byte, 4> bytes;
      std::memcpy(bytes.data(), &bits, 4);
      const double value = load_as_double(bytes.data(), dtype);
      const NonFinite found = count_non_finite(std::span(bytes).first(size), dtype);
      ASSERT_EQ(found.nan, std::isnan(value)) << torch_name(dtype) << " " << bits;
      ASSERT_EQ(found.infinite, std::isinf(value)) << torch_name(dtype) << " " << bits;
    }
  }
  for (const DType dtype : {DType::f4x2, DType::i8, DType::u8, DType::i64}) {
    EXPECT_FALSE(may_be_non_finite(dtype));
  }
}

TEST(NonFinite, CountsWideTypes) {
  const std::array<float, 4> halves = {1, NAN, -INFINITY, INFINITY};
  const NonFinite f32 = count_non_finite(std::as_bytes(std::span(halves)), DType::f32);
  EXPECT_EQ(f32.nan, 1);
  EXPECT_EQ(f32.infinite, 2);
  const std::array<double, 3> values = {-NAN, INFINITY, 1e300};
  const NonFinite f64 = count_non_finite(std::as_bytes(std::span(values)), DType::f64);
  EXPECT_EQ(f64.nan, 1);
  EXPECT_EQ(f64.infinite, 1);
}

// A file of tensors of several types, one of them between others' bytes, in pieces of any length.
TEST(PassingValues, FindsThemHoweverTheBytesAreCut) {
  std::string file(5, '\xff');
  Catalog catalog;
  const uint32_t number = catalog.add_file("f", 0);
  const auto add = [&](const std::string& name, DType dtype, const std::string& data) {
    Entry entry{name, dtype, {static_cast<int64_t>(data.size()) / size_bytes(dtype)}, {}, {}};
    Chunk chunk;
    chunk.box = {{0}, entry.shape};
    chunk.extent = {number, file.size(), data.size()};
    entry.chunks.push_back(chunk);
    catalog.entries.push_back(entry);
    file += data;
  };
  const auto bytes_of = [](auto... values) {
    std::string bytes;
    (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
    return bytes;
  };
  add("a", DType::f32, bytes_of(1.f, float(NAN), 2.f, float(INFINITY), float(NAN)));
  add("whole", DType::f64, bytes_of(1.0, 2.0));
  add("numbers", DType::i32, bytes_of(-1, -1));
  add("b", DType::f64, bytes_of(double(INFINITY)));
  add("c", DType::bf16, bytes_of(uint16_t{0x7fc0}, uint16_t{0x3f80}));
  file += "\xff\xff\xff";
  catalog.files[number].bytes = file.size();
  for (size_t piece = 1; piece <= file.size(); ++piece) {
    PassingValues values(catalog, catalog.files, 1);
    auto see = values.reader();
    for (size_t at = 0; at < file.size(); at += piece) {
      see(number, at,
          std::as_bytes(std::span(file)).subspan(at, std::min(piece, file.size() - at)));
    }
    std::vector<std::string> found;
    for (const NonFiniteTensor& each : values.found()) {
      found.push_back(each.name + " " + std::to_string(each.values.nan) + " " +
                      std::to_string(each.values.infinite));
    }
    EXPECT_THAT(found, ElementsAre("a 2 1", "b 0 1", "c 1 0")) << piece;
  }
  PassingValues values(catalog, catalog.files, 1);
  values.reader()(number, 5, std::as_bytes(std::span(file)).subspan(5, 20));
  EXPECT_EQ(to_text(values.found()),
            "1 tensor holds NaN or infinite values: a (2 NaN, 1 infinite of 5)");
  EXPECT_EQ(values.ranges().at(0).size(), 4u);
}

}  // namespace
}  // namespace ferry
