#include "ckpt/engine/quantise/quantise_block.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "ckpt/base/cast.h"
#include "ckpt/engine/quantise/quantising_runner.h"

namespace ferry {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Quantised {
  std::vector<uint8_t> codes;
  float scale;
};

Quantised quantise(const std::vector<float>& values) {
  BlockQuantiser quantiser(DType::f32);
  Quantised result{std::vector<uint8_t>(values.size()), 0};
  const auto count = static_cast<int64_t>(values.size());
  result.scale =
      quantiser.quantise({reinterpret_cast<const std::byte*>(values.data()), count * 4, 1, count},
                         reinterpret_cast<std::byte*>(result.codes.data()), count);
  return result;
}

uint8_t code_of(float value) {
  uint8_t code;
  convert(reinterpret_cast<const std::byte*>(&value), 4, DType::f32,
          reinterpret_cast<std::byte*>(&code), 1, DType::f8_e4m3, 1);
  return code;
}

// 448 makes the scale 1, so that codes are those of the values themselves.
TEST(QuantiseBlock, RoundsAsTheCastDoes) {
  std::vector<float> values{448};
  for (uint32_t bits = 0; bits < 0x43e00000; bits += 0x3ff1) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  for (uint32_t code = 0; code < 0x7e; ++code) {  // between each two codes: ties
    const auto low = static_cast<std::byte>(code), high = static_cast<std::byte>(code + 1);
    const double middle =
        (load_as_double(&low, DType::f8_e4m3) + load_as_double(&high, DType::f8_e4m3)) / 2;
    values.push_back(static_cast<float>(middle));
  }
  const Quantised result = quantise(values);
  EXPECT_EQ(result.scale, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(result.codes[i], code_of(values[i])) << values[i];
  }
}

TEST(QuantiseBlock, ScalesTheLargestMagnitudeToTheLargestCode) {
  const Quantised result = quantise({-3, 1.5, 0, 3});
  EXPECT_EQ(result.scale, 3.0f / 448);
  EXPECT_THAT(result.codes, testing::ElementsAre(0xfe, 0x76, 0, 0x7e));
}

TEST(QuantiseBlock, DividesNothingByZero) {
  const Quantised result = quantise({0, -0.0f});
  EXPECT_EQ(result.scale, 1e-12f / 448);
  EXPECT_THAT(result.codes, testing::ElementsAre(0, 0x80));
  std::vector<std::byte> half(4);  // fp16 has no such small number
  uint8_t codes[2];
  EXPECT_EQ(BlockQuantiser(DType::f16)
                .quantise({half.data(), 4, 1, 2}, reinterpret_cast<std::byte*>(codes), 2),
            1e-12f / 448);
}

TEST(QuantiseBlock, KeepsWhatIsNoNumber) {
  const Quantised nan = quantise({1, kNan});
  EXPECT_TRUE(std::isnan(nan.scale));
  EXPECT_EQ(nan.codes[0] & 0x7f, 0x7f);
  const Quantised infinite = quantise({1, kInfinity});
  EXPECT_EQ(infinite.scale, kInfinity);
  EXPECT_EQ(infinite.codes[0], 0);
  EXPECT_EQ(infinite.codes[1] & 0x7f, 0x7f);
}

TEST(CutIntoBlocks, CutsWholeBlocksThatCoverTheShape) {
  for (const Dims& shape : {Dims{1, 1}, Dims{7, 9}, Dims{8, 8}, Dims{30, 100}, Dims{100, 3}}) {
    for (const int64_t most : {1, 16, 40, 64, 1000, 100000}) {
      int64_t elements = 0;
      for (const Box& box : cut_into_blocks(shape, {4, 8}, most)) {
        EXPECT_TRUE(is_inside(box, shape));
        EXPECT_EQ(box.offset[0] % 4, 0);
        EXPECT_EQ(box.offset[1] % 8, 0);
        EXPECT_LE(box.size[0] * box.size[1], std::max<int64_t>(most, 32));
        elements += box.size[0] * box.size[1];
      }
      EXPECT_EQ(elements, shape[0] * shape[1]) << to_string(shape) << " " << most;
    }
  }
}

}  // namespace
}  // namespace ferry
