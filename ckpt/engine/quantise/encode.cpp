#include "ckpt/engine/quantise/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ckpt/base/cast.h"
#include "ckpt/base/load_as.h"
#include "ckpt/base/processors.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/elements/decode.h"
#include "ckpt/engine/quantise/encode_loops.h"

namespace ferry {
namespace {

constexpr float kLargestE4m3 = 448, kLargestE2m1 = 6;
constexpr float kLeast = 1e-12F;
constexpr float kLeastScale = 0x1p-9F;  // the smallest e4m3 number but 0
constexpr int32_t kMagnitude = 0x7fffffff;
constexpr int kBias = 127;
// Values that are made fp32 at once: they and their quotients stay in a core's first cache, where
// they take less time to make twice than to bring from further away.
constexpr int64_t kAtOnce = 2048;
constexpr float kRounding = 12582912;  // 1.5 x 2^23: sums are rounded to whole numbers
constexpr float kLowInt4 = -8, kHighInt4 = 7, kRangeInt4 = 15;

float to_type(float value, DType dtype) {
  std::byte small[sizeof(float)];
  float result = value;
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32, small, 0, dtype, 1);
  convert(small, 0, dtype, reinterpret_cast<std::byte*>(&result), 0, DType::f32, 1);
  return result;
}

uint32_t bits_as(float value, DType dtype) {
  uint32_t bits = 0;
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32,
          reinterpret_cast<std::byte*>(&bits), 0, dtype, 1);
  return bits;
}

float rounded_to(float value, DType dtype) {
  if (dtype == DType::f32) return value;
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype != DType::bf16 || std::isnan(value)) return to_type(value, dtype);
  return std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1)) & 0xffff0000U);
}

float epsilon_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7F : dtype == DType::f16 ? 0x1p-10F : 0x1p-23F;
}

float global_of(const Quantise& how, float least, float largest) {
  switch (how.rule) {
    case QuantiseRule::fp8_tensor:
      return std::max(largest, least) / kLargestE4m3;
    case QuantiseRule::nvfp4: {
      const float global = largest / (kLargestE2m1 * kLargestE4m3);
      return global == 0 ? 1 : global;  // ModelOpt's own code makes NaN of zeros
    }
    case QuantiseRule::nvfp4_divided: {
      const float least_normal = how.values == DType::f16 ? 0x1p-14F : 0x1p-126F;
      const float global =
          rounded_to(kLargestE4m3 * kLargestE2m1 / std::max(largest, least_normal), how.values);
      return std::isfinite(global) ? global : 1;
    }
    default:
      return 1;
  }
}

}  // namespace

Encoder::Encoder(const Quantise& how, float largest)
    : rule_(how.rule),
      dtype_(how.values),
      multiplies_(rule_ == QuantiseRule::mxfp8 || rule_ == QuantiseRule::mxfp4_up ||
                  rule_ == QuantiseRule::fp8_exponents),
      exact_(kAtOnce),
      quotients_(kAtOnce) {
  const float least = to_type(kLeast, dtype_);  // fp16 has none so small
  least_ = least > 0 ? least : kLeast;
  global_ = global_of(how, least_, largest);
}

void Encoder::encode(const ValueRows& rows, int64_t width, const EncodedRows& into) {
  const auto blocks = static_cast<size_t>(blocks_in(rows.columns, width));
  find_scales(rows, width, blocks);
  for (size_t block = 0; block < blocks; ++block) {
    if (into.scales != nullptr) into.scales[block] = stored_[block];
    if (into.zeros != nullptr) into.zeros[block] = static_cast<uint8_t>(zeros_[block] - kLowInt4);
  }
  const bool is_integer = rule_ == QuantiseRule::int4 || rule_ == QuantiseRule::int4_zeros;
  const bool has_zeros = rule_ == QuantiseRule::int4_zeros;
  for (int64_t row = 0; row < rows.rows; ++row) {
    each_piece(rows, row, width, [&](const BlockedRow& piece, int64_t first) {
      uint8_t* const codes = into.codes + row * into.pitch + first;
      const float* const factors = factors_.data() + first / width;
      if (is_integer) {
        const float* const zeros = has_zeros ? zeros_.data() + first / width : nullptr;
        encode_integers(piece, factors, zeros, dtype_, codes);
      } else {
        scale_row(piece, factors, multiplies_, quotients_.data());
        round_row(rule_, quotients_.data(), piece.columns, codes);
      }
    });
  }
}

// Calls use(piece, its first column) for pieces of a row: whole blocks, or parts of one.
template <typename Use>
void Encoder::each_piece(const ValueRows& rows, int64_t row, int64_t width, const Use& use) {
  const int64_t bytes = size_bytes(dtype_);
  for (int64_t first = 0, count = 0; first < rows.columns; first += count) {
    count = width < kAtOnce ? kAtOnce / width * width : std::min(kAtOnce, width - first % width);
    count = std::min(count, rows.columns - first);
    convert(rows.first + (row * rows.pitch + first) * bytes, bytes, dtype_,
            reinterpret_cast<std::byte*>(exact_.data()), sizeof(float), DType::f32, count);
    use(BlockedRow{exact_.data(), count, width}, first);
  }
}

void Encoder::find_scales(const ValueRows& rows, int64_t width, size_t blocks) {
  stored_.assign(blocks, 0);
  factors_.assign(blocks, global_);
  zeros_.assign(blocks, 0);
  if (rule_ == QuantiseRule::fp8_tensor) return;
  if (rule_ == QuantiseRule::int4_zeros) {
    most_.resize(blocks);
    each_piece(rows, 0, width, [&](const BlockedRow& piece, int64_t first) {
      const auto block = first / width;
      find_extremes(piece, factors_.data() + block, most_.data() + block);
    });
    for (size_t block = 0; block < blocks; ++block) {
      set(block, scale_of_int4_zeros(factors_[block], most_[block]));
    }
    return;
  }
  largest_.assign(blocks, 0);
  for (int64_t row = 0; row < rows.rows; ++row) {
    each_piece(rows, row, width, [&](const BlockedRow& piece, int64_t first) {
      raise_largest(piece, largest_.data() + first / width);
    });
  }
  if (rule_ == QuantiseRule::nvfp4 || rule_ == QuantiseRule::nvfp4_divided) return find_nvfp4();
  for (size_t block = 0; block < blocks; ++block) {
    const auto largest = std::bit_cast<float>(largest_[block]);
    switch (rule_) {
      case QuantiseRule::fp8:
        set(block, scale_of_fp8(largest));
        break;
      case QuantiseRule::fp8_exponents:
        set(block, power_of_two(largest));
        break;
      case QuantiseRule::int4:
        set(block, stored_as_int4(rounded(largest / (kRangeInt4 / 2)), 0));
        break;
      default:
        return find_mx();
    }
  }
}

void Encoder::set(size_t block, const Scale& scale) {
  stored_[block] = scale.stored;
  factors_[block] = scale.factor;
  zeros_[block] = scale.zero;
}

Encoder::Scale Encoder::scale_of_fp8(float largest) const {
  const float scale = (largest < least_ ? least_ : largest) / kLargestE4m3;
  return {std::bit_cast<uint32_t>(scale), scale};
}

// 255 is no number. Where a block holds NaN, transformers takes 1 as for zeros.
Encoder::Scale Encoder::power_of_two(float largest) const {
  const float inverse = largest > 0 ? 1 / (1 / largest * kLargestE4m3) : 1;
  if (std::isinf(inverse)) return {2 * kBias + 1, std::numeric_limits<float>::quiet_NaN()};
  const auto exponent = static_cast<int>(std::ceil(std::log2(std::max(inverse, 0x1p-126F))));
  return {static_cast<uint32_t>(kBias + exponent), std::ldexp(1.0F, -exponent)};
}

// Powers of two, by their exponents with the bias 127.
void Encoder::find_mx() {
  constexpr int32_t kHalfSmallest = 0x400000;  // 2^-127
  const size_t blocks = largest_.size();
  for (size_t block = 0; block < blocks; ++block) {
    const auto largest = std::bit_cast<float>(largest_[block]);
    int32_t biased = 0;
    if (rule_ == QuantiseRule::mxfp8) {
      const float scale = largest / kLargestE4m3;
      biased = std::min((std::bit_cast<int32_t>(scale) + 0x7fffff) >> 23, 2 * kBias);
      // The logarithm is rounded, and meets a whole number by that, but of fp32 alone.
      if (dtype_ == DType::f32 && scale > 0) {
        const float exponent = std::ceil(std::log2(scale));
        biased = kBias + static_cast<int>(std::clamp<float>(exponent, -kBias, kBias));
      }
    } else if (rule_ == QuantiseRule::mxfp4_up) {
      biased = (std::bit_cast<int32_t>(largest / kLargestE2m1) + 0x7fffff) >> 23;
    } else {
      biased = std::max(((largest_[block] + 0x200000) >> 23) - 2, 0);
    }
    stored_[block] = static_cast<uint32_t>(biased);
    const int32_t exponent = multiplies_ ? 2 * kBias - biased : biased;
    const int32_t factor = exponent <= 0 ? kHalfSmallest : exponent << 23;
    const bool is_nothing = rule_ == QuantiseRule::mxfp4_up && biased == 0;
    factors_[block] = is_nothing ? 0 : std::bit_cast<float>(factor);
  }
}

// Scales that are codes themselves.
void Encoder::find_nvfp4() {
  const bool divides = rule_ == QuantiseRule::nvfp4_divided;
  const size_t blocks = largest_.size();
  codes_.resize(blocks);
  const float sixth = kLargestE2m1 * global_;
  for (size_t block = 0; block < blocks; ++block) {
    const auto largest = std::bit_cast<float>(largest_[block]);
    const float scale = divides ? global_ * rounded(largest / kLargestE2m1) : largest / sixth;
    const float some = scale == 0 ? 1 : scale;
    factors_[block] = divides ? scale : std::max(some, kLeastScale);
  }
  round_row(QuantiseRule::fp8, factors_.data(), static_cast<int64_t>(blocks), codes_.data());
  constexpr uint8_t kEighth = 0x20;
  for (size_t block = 0; block < blocks; ++block) {
    const uint8_t code = divides && codes_[block] == 0 ? kEighth : codes_[block];
    stored_[block] = code;
    const float scale = e4m3_float(0, code);
    factors_[block] = divides ? scale / global_ : scale * global_;
  }
}

float Encoder::rounded(float value) const { return rounded_to(value, dtype_); }

Encoder::Scale Encoder::scale_of_int4_zeros(float least, float most) const {
  const float scale = rounded(rounded(most - least) / kRangeInt4);
  const float zero = std::clamp(rounded(kLowInt4 - rounded(least / scale)), kLowInt4, kHighInt4);
  const bool is_any = scale == 0 || std::isnan(zero);
  return stored_as_int4(scale, is_any ? 0 : zero + kRounding - kRounding);
}

Encoder::Scale Encoder::stored_as_int4(float scale, float zero) const {
  if (scale == 0) scale = epsilon_of(dtype_);
  const uint32_t bits =
      dtype_ == DType::bf16 ? std::bit_cast<uint32_t>(scale) >> 16 : bits_as(scale, dtype_);
  return {bits, scale, zero};
}

float largest_magnitude(const std::byte* values, DType dtype, int64_t count) {
  if (dtype == DType::f32) {
    int32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, load_as<int32_t>(values + 4 * i) & kMagnitude);
    }
    return std::bit_cast<float>(largest);
  }
  int16_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int16_t>(load_as<int16_t>(values + 2 * i) & 0x7fff);
    largest = std::max(largest, magnitude);
  }
  float result = 0;
  convert(reinterpret_cast<const std::byte*>(&largest), 0, dtype,
          reinterpret_cast<std::byte*>(&result), 0, DType::f32, 1);
  return result;
}

// `out` may be where the codes are; a copy of some of them lets a compiler make vectors of the
// loop.
FERRY_FOR_EACH_PROCESSOR void pack_pairs(const uint8_t* codes, int64_t count, std::byte* out) {
  constexpr int64_t kPairs = 512;
  uint8_t some[2 * kPairs];
  for (int64_t first = 0; first < count / 2; first += kPairs) {
    const int64_t pairs = std::min(kPairs, count / 2 - first);
    std::memcpy(some, codes + 2 * first, static_cast<size_t>(2 * pairs));
    for (int64_t i = 0; i < pairs; ++i) {
      out[first + i] = static_cast<std::byte>(some[2 * i] | some[2 * i + 1] << 4);
    }
  }
}

}  // namespace ferry
