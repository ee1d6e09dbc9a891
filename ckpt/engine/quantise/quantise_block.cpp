#include "ckpt/engine/quantise/quantise_block.h"

#include <algorithm>
#include <bit>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr float kLargest = 448;  // of float8_e4m3fn
constexpr float kLeast = 1e-12f;
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kSmallestNormal = 0x3c800000;  // 2^-6

// Without branches, so that a compiler makes vectors of it.
uint8_t e4m3_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t given = bits & kMagnitude;
  const uint32_t magnitude = std::min(given, std::bit_cast<uint32_t>(kLargest));
  const uint32_t odd = magnitude >> 20 & 1;
  const uint32_t normal = (magnitude - ((127u - 7u) << 23) + 0x7ffffu + odd) >> 20;
  // The unit of 2^14 is that of the subnormals, 2^-9: the sum is rounded to it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
  const uint32_t finite = magnitude < kSmallestNormal ? subnormal : normal;
  return static_cast<uint8_t>((bits >> 24 & 0x80) | (given > kInfinity ? 0x7f : finite));
}

// The smallest magnitude as the values' own type has it; fp16 has none so small.
uint32_t least_bits_of(DType dtype) {
  float least = kLeast;
  std::byte small[sizeof(float)];
  convert(reinterpret_cast<const std::byte*>(&least), 0, DType::f32, small, 0, dtype, 1);
  convert(small, 0, dtype, reinterpret_cast<std::byte*>(&least), 0, DType::f32, 1);
  return std::bit_cast<uint32_t>(least > 0 ? least : kLeast);
}

}  // namespace

BlockQuantiser::BlockQuantiser(DType values) : dtype_(values), least_bits_(least_bits_of(values)) {}

float BlockQuantiser::quantise(const BlockRows& block, std::byte* out, int64_t out_pitch) {
  values_.resize(static_cast<size_t>(block.rows * block.columns));
  uint32_t largest_bits = least_bits_;  // a NaN's are larger than all others
  for (int64_t row = 0; row < block.rows; ++row) {
    float* values = values_.data() + row * block.columns;
    convert(block.first + row * block.pitch, size_bytes(dtype_), dtype_,
            reinterpret_cast<std::byte*>(values), sizeof(float), DType::f32, block.columns);
    uint32_t row_bits = 0;
    for (int64_t i = 0; i < block.columns; ++i) {
      row_bits = std::max(row_bits, std::bit_cast<uint32_t>(values[i]) & kMagnitude);
    }
    largest_bits = std::max(largest_bits, row_bits);
  }
  const float scale = std::bit_cast<float>(largest_bits) / kLargest;
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* values = values_.data() + row * block.columns;
    auto* bytes = reinterpret_cast<uint8_t*>(out + row * out_pitch);
    for (int64_t i = 0; i < block.columns; ++i) bytes[i] = e4m3_of(values[i] / scale);
  }
  return scale;
}

}  // namespace ferry
