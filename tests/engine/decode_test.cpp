// Each code of each kind, against what the code's definition says, from even and odd places.
#include "ckpt/engine/elements/decode.h"

#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr std::array<float, 16> kE2m1 = {0,    0.5F,  1,  1.5F,  2,  3,  4,  6,
                                         -0.F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

std::vector<std::byte> all_bytes() {
  std::vector<std::byte> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

float value_of(Code code, DType stored, const std::vector<std::byte>& bytes, int64_t at) {
  const auto index = static_cast<size_t>(codes_per_byte(code) == 2 ? at / 2 : at);
  const auto byte = std::to_integer<uint8_t>(bytes[index]);
  const int nibble = at % 2 == 0 ? byte & 15 : byte >> 4;
  if (code == Code::e2m1) return kE2m1[static_cast<size_t>(nibble)];
  if (code == Code::u4) return static_cast<float>(nibble);
  if (code == Code::u8) return byte;
  const auto bits = static_cast<std::byte>(byte);
  return static_cast<float>(load_as_double(&bits, stored));
}

// Without subnormal numbers, zeros and NaN of e4m3.
std::vector<std::byte> normal_bytes() {
  std::vector<std::byte> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(8 + i % 119 + (i % 3 == 0 ? 128 : 0));
  }
  return bytes;
}

void expect_all(Code code, DType stored = DType::u8,
                const std::vector<std::byte>& bytes = all_bytes()) {
  const int64_t codes = 256 * codes_per_byte(code);
  // Blocks of 48, the first of which began 5 codes before.
  std::vector<float> scales(16), zeros(16);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = 0.75F + static_cast<float>(i);
    zeros[i] = stored == DType::f8_e4m3 ? 0 : static_cast<float>(i % 3);
  }
  for (const int64_t first : {0, 1, 7, 32}) {
    for (const int64_t less : {0, 1, 30}) {
      const int64_t count = codes - first - less;
      std::vector<float> values(static_cast<size_t>(count));
      const RowScales row{scales.data(), zeros.data(), 0, 48, 5};
      Decoder(code, stored)
          .decode(bytes.data(), first, count, row, DType::f32,
                  reinterpret_cast<std::byte*>(values.data()));
      for (int64_t i = 0; i < count; ++i) {
        const auto block = static_cast<size_t>((i + 5) / 48);
        const float expected =
            (value_of(code, stored, bytes, first + i) - zeros[block]) * scales[block];
        const float found = values[static_cast<size_t>(i)];
        ASSERT_EQ(std::isnan(found), std::isnan(expected)) << first << ", " << i;
        if (std::isnan(expected)) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
            << first << ", " << i << ": " << found << ", not " << expected;
      }
    }
  }
}

// From each code to bf16 with scales of blocks of several widths, some of them no numbers, is what
// rounding the fp32 values gives.
void expect_rounded(const std::vector<std::byte>& some) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 12; ++i) bytes.insert(bytes.end(), some.begin(), some.end());
  std::vector<float> scales(bytes.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    // Every third one makes values halfway between two of bf16.
    scales[i] =
        i % 3 == 0 ? 1 + 0x1p-8F * static_cast<float>(i % 8) : 0.0007F * static_cast<float>(i);
  }
  scales[7] = std::numeric_limits<float>::infinity();
  scales[9] = std::numeric_limits<float>::quiet_NaN();
  const Decoder decoder(Code::element, DType::f8_e4m3);
  for (const int64_t block : {16, 32, 48, 128, 5000}) {
    for (const int64_t into : {0, 3}) {
      for (const int64_t count : {1, 127, 128, 300, 3000}) {
        const RowScales row{scales.data(), nullptr, 0, block, into};
        const auto values = static_cast<size_t>(count);
        std::vector<std::byte> exact(4 * values), rounded(2 * values), expected(2 * values);
        decoder.decode(bytes.data(), 1, count, row, DType::f32, exact.data());
        decoder.decode(bytes.data(), 1, count, row, DType::bf16, rounded.data());
        convert(exact.data(), 4, DType::f32, expected.data(), 2, DType::bf16, count);
        ASSERT_EQ(rounded, expected) << block << " " << into << " " << count;
      }
    }
  }
}

TEST(Decode, E4m3ToBf16) {
  expect_rounded(all_bytes());
  expect_rounded(normal_bytes());
}

TEST(Decode, E4m3) { expect_all(Code::element, DType::f8_e4m3); }
TEST(Decode, NormalE4m3) { expect_all(Code::element, DType::f8_e4m3, normal_bytes()); }
TEST(Decode, E5m2) { expect_all(Code::element, DType::f8_e5m2); }
TEST(Decode, Integers) { expect_all(Code::element, DType::i8); }
TEST(Decode, Bytes) { expect_all(Code::u8); }
TEST(Decode, PairsOfFloats) { expect_all(Code::e2m1); }
TEST(Decode, PairsOfIntegers) { expect_all(Code::u4); }

}  // namespace
}  // namespace ferry
