#include "ops/inspect/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

template <typename T>
Statistics of(DType dtype, const std::vector<T>& values) {
  Entry entry;
  entry.name = "t";
  entry.dtype = dtype;
  entry.shape = {static_cast<int64_t>(values.size())};
  uint64_t bytes = 0;
  std::string file = write_safetensors_header({&entry}, {}, 0, &bytes);
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("t.safetensors", file);
  const Catalog catalog = open_safetensors_file(memory, "t.safetensors");
  return statistics(catalog, catalog.entries.at(0), 1 << 20);
}

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Statistics, OfFloatsWithNanAndInfinity) {
  const auto s = of<float>(DType::f32, {1, 2, 3, 4, NAN, INFINITY, -INFINITY, NAN});
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 4);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.std, std::sqrt(1.25));
  EXPECT_EQ(s.finite, 4);
  EXPECT_EQ(s.nan, 2);
  EXPECT_EQ(s.infinite, 2);
}

TEST(Statistics, OfEveryKindOfNumber) {
  EXPECT_EQ(of<uint16_t>(DType::bf16, {0x3f80, 0xc000}).mean, -0.5);
  EXPECT_EQ(of<uint16_t>(DType::f16, {0x3c00, 0xc000}).mean, -0.5);
  EXPECT_EQ(of<double>(DType::f64, {1e300, -1e300, 3}).mean, 1);
  EXPECT_EQ(of<uint8_t>(DType::f8_e5m2, {0x3c, 0x7c}).infinite, 1);
  EXPECT_EQ(of<uint8_t>(DType::f8_e4m3, {0x38, 0x7f}).nan, 1);
  EXPECT_EQ(of<int64_t>(DType::i64, {-5, 7}).min, -5);
  EXPECT_EQ(of<uint8_t>(DType::boolean, {1, 0, 1, 1}).mean, 0.75);
  EXPECT_EQ(of<uint8_t>(DType::u8, {200, 0}).max, 200);
  EXPECT_NE(of<double>(DType::c64, {0}).problem, "");
  EXPECT_EQ(of<float>(DType::f32, {}).finite, 0);
}

TEST(Statistics, KeepDigitsWithALargeMean) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> values(100'000);
  double sum = 0;
  for (double& value : values) value = 1e9 + normal(random);
  for (double value : values) sum += value - 1e9;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - 1e9 - mean) * (value - 1e9 - mean);
  const auto s = of(DType::f64, values);
  EXPECT_NEAR(s.mean, 1e9 + mean, 1e-6);
  EXPECT_NEAR(s.std, std::sqrt(squares / static_cast<double>(values.size())), 1e-6);
  EXPECT_LT(s.max, kInf);
}

}  // namespace
}  // namespace ferry
