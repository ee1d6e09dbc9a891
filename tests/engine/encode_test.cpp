// Codes and scales of small blocks; tests/tools/hugging_face/quantised_test.cpp has what the other
// programs made of larger ones.
#include "ckpt/engine/quantise/encode.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ckpt/base/cast.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/quantise/quantising_runner.h"

namespace ferry {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct QuantisedBlock {
  std::vector<uint8_t> codes;
  float scale;
};

Quantise rule_of(QuantiseRule rule, DType values) {
  Quantise how;
  how.rule = rule;
  how.values = values;
  return how;
}

// The values as `dtype` has them.
std::vector<std::byte> stored_as(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_bytes(dtype)));
  convert(reinterpret_cast<const std::byte*>(values.data()), sizeof(float), DType::f32,
          bytes.data(), size_bytes(dtype), dtype, static_cast<int64_t>(values.size()));
  return bytes;
}

QuantisedBlock quantise(const std::vector<float>& values, DType dtype = DType::f32) {
  Encoder encoder(rule_of(QuantiseRule::fp8, dtype), 0);
  QuantisedBlock result{std::vector<uint8_t>(values.size()), 0};
  const auto count = static_cast<int64_t>(values.size());
  const std::vector<std::byte> stored = stored_as(dtype, values);
  encoder.encode({stored.data(), count, 1, count}, count,
                 {reinterpret_cast<std::byte*>(result.codes.data()), count,
                  reinterpret_cast<std::byte*>(&result.scale)});
  return result;
}

uint8_t code_of(float value) {
  uint8_t code;
  convert(reinterpret_cast<const std::byte*>(&value), 4, DType::f32,
          reinterpret_cast<std::byte*>(&code), 1, DType::f8_e4m3, 1);
  return code;
}

struct Encoded {
  std::vector<uint8_t> codes;
  uint32_t scale = 0;
  uint8_t zero = 0;
};

Encoded encode(QuantiseRule rule, const std::vector<float>& values, float largest = 0,
               DType dtype = DType::bf16) {
  Encoder encoder(rule_of(rule, dtype), largest);
  Encoded result{std::vector<uint8_t>(values.size())};
  const auto count = static_cast<int64_t>(values.size());
  const std::vector<std::byte> stored = stored_as(dtype, values);
  std::vector<uint8_t> bytes(values.size());
  encoder.encode({stored.data(), count, 1, count}, count,
                 {reinterpret_cast<std::byte*>(bytes.data()), count,
                  reinterpret_cast<std::byte*>(&result.scale), &result.zero});
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_byte = codes_in_byte(rule) == 1;
    result.codes[i] = is_byte ? bytes[i] : bytes[i / 2] >> 4 * (i % 2) & 15;
  }
  return result;
}

// 448 makes the scale 1, so that codes are those of the values themselves.
TEST(Encode, RoundsAsTheCastDoes) {
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
  const QuantisedBlock result = quantise(values);
  EXPECT_EQ(result.scale, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(result.codes[i], code_of(values[i])) << values[i];
  }
}

// Any number that a quotient may be, also far outside the range.
TEST(Encode, SaturatesAtTheLargestCode) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0x7f800000; bits += 0xfff7) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  const Encoded result = encode(QuantiseRule::fp8_tensor, values, 448, DType::f32);
  for (size_t i = 0; i < values.size(); ++i) {
    const float nearest = std::clamp(values[i], -448.0F, 448.0F);
    ASSERT_EQ(result.codes[i], code_of(nearest)) << values[i];
  }
}

TEST(Encode, ScalesTheLargestMagnitudeToTheLargestCode) {
  const QuantisedBlock result = quantise({-3, 1.5, 0, 3});
  EXPECT_EQ(result.scale, 3.0f / 448);
  EXPECT_THAT(result.codes, testing::ElementsAre(0xfe, 0x76, 0, 0x7e));
}

TEST(Encode, DividesNothingByZero) {
  const QuantisedBlock result = quantise({0, -0.0f});
  EXPECT_EQ(result.scale, 1e-12f / 448);
  EXPECT_THAT(result.codes, testing::ElementsAre(0, 0x80));
  EXPECT_EQ(quantise({0, 0}, DType::f16).scale, 1e-12f / 448);  // it has no such small number
}

TEST(Encode, KeepsWhatIsNoNumber) {
  const QuantisedBlock nan = quantise({1, kNan});
  EXPECT_TRUE(std::isnan(nan.scale));
  EXPECT_EQ(nan.codes[0] & 0x7f, 0x7f);
  const QuantisedBlock infinite = quantise({1, kInfinity});
  EXPECT_EQ(infinite.scale, kInfinity);
  EXPECT_EQ(infinite.codes[0], 0);
  EXPECT_EQ(infinite.codes[1] & 0x7f, 0x7f);
}

using testing::ElementsAre;

// Halfway between two numbers of 4 bits the even code; what is rounded to zero keeps its sign.
TEST(Encode, FourBitsAreRoundedToEven) {
  const std::vector<float> values = {6,     5,     3.5F,   2.5F,  1.75F, 1.25F,
                                     0.75F, 0.25F, -0.25F, -0.0F, -5.5F, 0.3F};
  const Encoded result = encode(QuantiseRule::mxfp4, values);
  EXPECT_EQ(result.scale, 127u);  // 1: six is the largest
  EXPECT_THAT(result.codes, ElementsAre(7, 6, 6, 4, 4, 2, 2, 0, 8, 0, 15, 1));
  EXPECT_THAT(encode(QuantiseRule::mxfp4_up, {6, -0.0F}).codes, ElementsAre(7, 8));
}

// From 1.75 on the next power of two is the nearer one to some programs; others never cut.
TEST(Encode, PowersOfTwo) {
  EXPECT_EQ(encode(QuantiseRule::mxfp4, {6.96875F}).scale, 127u);
  EXPECT_EQ(encode(QuantiseRule::mxfp4, {7}).scale, 128u);
  EXPECT_EQ(encode(QuantiseRule::mxfp4, {0}).scale, 0u);
  EXPECT_EQ(encode(QuantiseRule::mxfp4_up, {6}).scale, 127u);
  EXPECT_EQ(encode(QuantiseRule::mxfp4_up, {6.03125F}).scale, 128u);
  EXPECT_THAT(encode(QuantiseRule::mxfp4_up, {0}).codes, ElementsAre(0));
  EXPECT_EQ(encode(QuantiseRule::mxfp8, {448}).scale, 127u);
  EXPECT_EQ(encode(QuantiseRule::mxfp8, {450}).scale, 128u);
  EXPECT_EQ(encode(QuantiseRule::mxfp8, {0}).scale, 0u);
  EXPECT_THAT(encode(QuantiseRule::mxfp8, {448, -224, 0}).codes, ElementsAre(0x7e, 0xf6, 0));
}

// Blocks of fp8 whose scales are exponents, by transformers; see encode.h.
TEST(Encode, PowersOfTwoOfBlocks) {
  constexpr QuantiseRule kRule = QuantiseRule::fp8_exponents;
  const auto scale_of = [&](float value) { return encode(kRule, {value}, 0, DType::f32).scale; };
  EXPECT_THAT(encode(kRule, {448, -3}).codes, ElementsAre(0x7e, 0xc4));
  EXPECT_EQ(scale_of(448), 127u);
  EXPECT_THAT(encode(kRule, {450, 1}).codes, ElementsAre(0x76, 0x30));
  EXPECT_EQ(scale_of(450), 128u);
  EXPECT_THAT(encode(kRule, {0, -0.0F}).codes, ElementsAre(0, 0x80));
  EXPECT_EQ(scale_of(0), 127u);
  EXPECT_THAT(encode(kRule, {1e-38F, 0}).codes, ElementsAre(0x36, 0));
  for (const float value : {1e-38F, 1e-36F, 5e-36F}) EXPECT_EQ(scale_of(value), 1u);
  EXPECT_EQ(scale_of(3e38F), 247u);
  // The logarithm of what is a few units above 7 x 2^-10 is rounded down to a whole number.
  const auto above = std::bit_cast<uint32_t>(7 * 0x1p-10F);
  EXPECT_EQ(scale_of(std::bit_cast<float>(above + 4)), 111u);
  EXPECT_EQ(scale_of(std::bit_cast<float>(above + 5)), 112u);
  const Encoded nan = encode(kRule, {1, kNan});
  EXPECT_EQ(nan.scale, 127u);
  EXPECT_EQ(nan.codes[0], 0x38);
  EXPECT_EQ(nan.codes[1] & 0x7f, 0x7f);
  const Encoded infinite = encode(kRule, {1, kInfinity});
  EXPECT_EQ(infinite.scale, 255u);
  EXPECT_EQ(infinite.codes[0] & 0x7f, 0x7f);
}

TEST(Encode, TwoLevelsOfScales) {
  // The largest of all makes the scale of its block 448, and six of itself.
  const Encoded top = encode(QuantiseRule::nvfp4, {3, -1.5F}, 3);
  EXPECT_EQ(top.scale, 0x7eu);
  EXPECT_THAT(top.codes, ElementsAre(7, 13));
  EXPECT_THAT(encode(QuantiseRule::nvfp4_divided, {3, -1.5F}, 3).codes, ElementsAre(7, 13));
  EXPECT_EQ(encode(QuantiseRule::nvfp4, {0}, 3).scale, 0x38u);          // 1
  EXPECT_EQ(encode(QuantiseRule::nvfp4_divided, {0}, 3).scale, 0x20u);  // 1/8
  EXPECT_THAT(encode(QuantiseRule::nvfp4, {0}, 0).codes, ElementsAre(0));
  EXPECT_EQ(Encoder(rule_of(QuantiseRule::nvfp4_divided, DType::bf16), 0).global(), 1);
}

TEST(Encode, FourBitIntegers) {
  const Encoded plain = encode(QuantiseRule::int4, {7.5F, -7.5F, 0, 2.5F});
  EXPECT_EQ(plain.scale, 0x3f80u);  // 1 as bf16
  EXPECT_EQ(plain.zero, 8);
  EXPECT_THAT(plain.codes, ElementsAre(15, 0, 8, 10));
  EXPECT_EQ(encode(QuantiseRule::int4, {0}).scale, 0x3c00u);  // 2^-7
  const Encoded shifted = encode(QuantiseRule::int4_zeros, {0, 15, 5});
  EXPECT_EQ(shifted.scale, 0x3f80u);
  EXPECT_EQ(shifted.zero, 0);
  EXPECT_THAT(shifted.codes, ElementsAre(0, 15, 5));
  EXPECT_EQ(encode(QuantiseRule::int4_zeros, {0}).zero, 8);
}

// Each result is rounded to the type of the values, small ones included.
TEST(Encode, IntegersAreRoundedAsTheirType) {
  std::vector<float> values;
  for (int i = 0; i < 4096; ++i) values.push_back(std::ldexp(std::sin(i * 0.37F), -(i % 24)));
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const auto as_type = [&](float value) {
      std::byte small[4];
      convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32, small, 0, dtype, 1);
      return static_cast<float>(load_as_double(small, dtype));
    };
    for (float& value : values) value = as_type(value);
    for (const QuantiseRule rule : {QuantiseRule::int4, QuantiseRule::int4_zeros}) {
      const Encoded result = encode(rule, values, 0, dtype);
      std::byte bits[4];
      std::memcpy(bits, &result.scale, sizeof bits);
      const auto scale = static_cast<float>(load_as_double(bits, dtype));
      const float zero = rule == QuantiseRule::int4 ? 0 : static_cast<float>(result.zero) - 8;
      for (size_t i = 0; i < values.size(); ++i) {
        const float quotient = as_type(as_type(values[i] / scale) + zero);
        const float code = std::clamp(std::nearbyint(quotient), -8.0F, 7.0F) + 8;
        ASSERT_EQ(result.codes[i], code) << values[i] << " " << torch_name(dtype);
      }
    }
  }
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
