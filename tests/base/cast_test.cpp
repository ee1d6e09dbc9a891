#include "ckpt/base/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace ferry {
namespace {

template <typename In, typename Out>
Out converted(In value, DType from, DType to) {
  Out out{};
  convert(reinterpret_cast<const std::byte*>(&value), 0, from, reinterpret_cast<std::byte*>(&out),
          0, to, 1);
  return out;
}

TEST(Cast, EveryHalfSurvivesTheWayThroughFloat) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto small = static_cast<uint16_t>(bits);
      const float wide = converted<uint16_t, float>(small, dtype, DType::f32);
      const auto back = converted<float, uint16_t>(wide, DType::f32, dtype);
      if (std::isnan(wide)) {
        EXPECT_TRUE(std::isnan(converted<uint16_t, float>(back, dtype, DType::f32)));
      } else {
        ASSERT_EQ(back, small) << safetensors_name(dtype);
      }
    }
  }
}

TEST(Cast, EveryFloat8SurvivesTheWayThroughFloat) {
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz}) {
    for (int bits = 0; bits < 256; ++bits) {
      const auto small = static_cast<uint8_t>(bits);
      const float wide = converted<uint8_t, float>(small, dtype, DType::f32);
      if (std::isnan(wide)) continue;
      ASSERT_EQ((converted<float, uint8_t>(wide, DType::f32, dtype)), small)
          << safetensors_name(dtype);
    }
  }
}

// From doubles every conversion goes the slow way, by the definition of the formats.
template <typename In, typename Out>
void expect_as_from_double(const std::vector<In>& values, DType from, DType to) {
  const auto count = static_cast<int64_t>(values.size());
  const auto* in = reinterpret_cast<const std::byte*>(values.data());
  std::vector<double> wide(values.size());
  for (int64_t i = 0; i < count; ++i) {
    wide[static_cast<size_t>(i)] = load_as_double(in + i * static_cast<int64_t>(sizeof(In)), from);
  }
  std::vector<Out> expected(values.size()), together(values.size()), apart(2 * values.size());
  convert(reinterpret_cast<const std::byte*>(wide.data()), 8, DType::f64,
          reinterpret_cast<std::byte*>(expected.data()), sizeof(Out), to, count);
  convert(in, sizeof(In), from, reinterpret_cast<std::byte*>(together.data()), sizeof(Out), to,
          count);
  convert(in, sizeof(In), from, reinterpret_cast<std::byte*>(apart.data()), 2 * sizeof(Out), to,
          count);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(together[i], expected[i])
        << safetensors_name(from) << " to " << safetensors_name(to) << ": " << values[i];
    ASSERT_EQ(apart[2 * i], expected[i]);
  }
}

TEST(Cast, TheFastWaysAreTheDefinition) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  expect_as_from_double<uint16_t, uint32_t>(halves, DType::f16, DType::f32);
  expect_as_from_double<uint16_t, uint16_t>(halves, DType::f16, DType::bf16);
  expect_as_from_double<uint16_t, uint16_t>(halves, DType::bf16, DType::f16);
  expect_as_from_double<uint16_t, uint64_t>(halves, DType::f16, DType::f64);
  std::vector<uint8_t> bytes(1024);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz}) {
    expect_as_from_double<uint8_t, uint32_t>(bytes, dtype, DType::f32);
    expect_as_from_double<uint8_t, uint16_t>(bytes, dtype, DType::bf16);
    expect_as_from_double<uint8_t, uint16_t>(bytes, dtype, DType::f16);
  }
  // Every sign, exponent and upper mantissa of a float, at and next to each place where it rounds.
  std::vector<uint32_t> floats;
  for (uint32_t upper = 0; upper < 1u << 19; ++upper) {
    for (uint32_t lower : {0u, 1u, 0xfffu, 0x1000u, 0x1001u}) floats.push_back(upper << 13 | lower);
  }
  expect_as_from_double<uint32_t, uint16_t>(floats, DType::f32, DType::f16);
  std::erase_if(floats, [](uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; });
  expect_as_from_double<uint32_t, uint16_t>(floats, DType::f32, DType::bf16);  // NaNs keep payloads
}

// Reference values from PyTorch: torch.tensor(x).to(dtype).
TEST(Cast, RoundsToNearestEvenOnce) {
  const auto bf16 = [](float x) { return converted<float, uint16_t>(x, DType::f32, DType::bf16); };
  EXPECT_EQ(bf16(1.0f), 0x3f80);
  EXPECT_EQ(bf16(1.00390625f), 0x3f80);  // halfway, to even
  EXPECT_EQ(bf16(1.01171875f), 0x3f82);  // halfway, to even
  EXPECT_EQ(bf16(3.4e38f), 0x7f80);
  const auto f16 = [](float x) { return converted<float, uint16_t>(x, DType::f32, DType::f16); };
  EXPECT_EQ(f16(65519.0f), 0x7bff);
  EXPECT_EQ(f16(65520.0f), 0x7c00);
  EXPECT_EQ(f16(-0.0f), 0x8000);
  EXPECT_EQ(f16(5.9604645e-8f), 0x0001);
  EXPECT_EQ(f16(2.9802322e-8f), 0x0000);  // half the smallest, to even
  EXPECT_EQ(f16(2048.0f + 1.0f), 0x6800);
  // A double that a detour over float would round twice, to the wrong side.
  const double just_above_half = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ((converted<double, uint16_t>(just_above_half, DType::f64, DType::bf16)), 0x3f81);
  const auto e4m3 = [](float x) {
    return converted<float, uint8_t>(x, DType::f32, DType::f8_e4m3);
  };
  EXPECT_EQ(e4m3(448.0f), 0x7e);
  EXPECT_EQ(e4m3(464.0f), 0x7e);
  EXPECT_EQ(e4m3(465.0f), 0x7f);  // NaN: the format has no infinity
}

}  // namespace
}  // namespace ferry
