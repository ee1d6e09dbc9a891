#include "ckpt/engine/quantise/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "ckpt/base/cast.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/elements/decode.h"
#include "ckpt/engine/quantise/encode_loops.h"

namespace ferry {
namespace {

constexpr float kLeast = 1e-12F;
constexpr float kLeastScale = 0x1p-9F;  // the smallest e4m3 number but 0
constexpr int kBias = 127;
constexpr float kHalfRangeInt4 = kRangeInt4 / 2;

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
  return dtype == DType::bf16 && !std::isnan(value) ? rounded_to_bf16(value)
                                                    : to_type(value, dtype);
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

// Magnitudes by their bits, which are those of `dtype`.
void magnitudes(std::span<const int32_t> bits, DType dtype, float* values) {
  // The lower half comes first.
  convert(reinterpret_cast<const std::byte*>(bits.data()), sizeof(int32_t), dtype,
          reinterpret_cast<std::byte*>(values), sizeof(float), DType::f32,
          static_cast<int64_t>(bits.size()));
}

template <typename Stored>
void store(std::span<const uint32_t> scales, std::byte* to) {
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto scale = static_cast<Stored>(scales[i]);
    std::memcpy(to + i * sizeof scale, &scale, sizeof scale);
  }
}

}  // namespace

Encoder::Encoder(const Quantise& how, float largest)
    : rule_(how.rule),
      dtype_(how.values),
      multiplies_(rule_ == QuantiseRule::mxfp8 || rule_ == QuantiseRule::mxfp4_up ||
                  rule_ == QuantiseRule::fp8_exponents),
      scale_bytes_(size_bytes(parts_of(how).front().dtype)),
      exact_(kEncodedAtOnce) {
  const float least = to_type(kLeast, dtype_);  // fp16 has none so small
  least_ = least > 0 ? least : kLeast;
  global_ = global_of(how, least_, largest);
}

void Encoder::encode(const ValueRows& rows, int64_t width, const EncodedRows& into) {
  const auto blocks = static_cast<size_t>(blocks_in(rows.columns, width));
  find_scales(rows, width, blocks);
  if (into.scales != nullptr) {
    const auto store_all = scale_bytes_ == 1   ? store<uint8_t>
                           : scale_bytes_ == 2 ? store<uint16_t>
                                               : store<uint32_t>;
    store_all(stored_, into.scales);
  }
  for (size_t block = 0; into.zeros != nullptr && block < blocks; ++block) {
    into.zeros[block] = static_cast<uint8_t>(zeros_[block] - kLowInt4);
  }
  const bool is_integer = rule_ == QuantiseRule::int4 || rule_ == QuantiseRule::int4_zeros;
  const bool has_zeros = rule_ == QuantiseRule::int4_zeros;
  const int64_t in_byte = codes_in_byte(rule_);
  for (int64_t row = 0; row < rows.rows; ++row) {
    each_piece(rows, row, width, [&](const BlockedRow& piece, int64_t first) {
      std::byte* const codes = into.codes + row * into.pitch + first / in_byte;
      const float* const factors = factors_.data() + first / width;
      if (is_integer) {
        const float* const zeros = has_zeros ? zeros_.data() + first / width : nullptr;
        encode_integers(piece, factors, zeros, dtype_, codes);
      } else {
        encode_floats(rule_, piece, factors, multiplies_, codes);
      }
    });
  }
}

// Calls use(piece, its first column) for pieces of a row: whole blocks, or parts of one.
template <typename Use>
void Encoder::each_piece(const ValueRows& rows, int64_t row, int64_t width, const Use& use) {
  const int64_t bytes = size_bytes(dtype_);
  for (int64_t first = 0, count = 0; first < rows.columns; first += count) {
    count = width < kEncodedAtOnce ? kEncodedAtOnce / width * width
                                   : std::min(kEncodedAtOnce, width - first % width);
    count = std::min(count, rows.columns - first);
    convert(rows.first + (row * rows.pitch + first) * bytes, bytes, dtype_,
            reinterpret_cast<std::byte*>(exact_.data()), sizeof(float), DType::f32, count);
    use(BlockedRow{exact_.data(), count, width}, first);
  }
}

void Encoder::find_largest(const ValueRows& rows, int64_t width, size_t blocks) {
  bits_.assign(blocks, 0);
  for (int64_t row = 0; row < rows.rows; ++row) {
    raise_largest(rows.first + row * rows.pitch * size_bytes(dtype_), dtype_, rows.columns, width,
                  bits_.data());
  }
  largest_.resize(blocks);
  magnitudes(bits_, dtype_, largest_.data());
}

void Encoder::find_scales(const ValueRows& rows, int64_t width, size_t blocks) {
  stored_.assign(blocks, 0);
  factors_.assign(blocks, global_);
  zeros_.assign(blocks, 0);
  if (rule_ == QuantiseRule::fp8_tensor) return;
  if (rule_ == QuantiseRule::int4_zeros) return find_int4_zeros(rows, width);
  find_largest(rows, width, blocks);
  switch (rule_) {
    case QuantiseRule::fp8:
      return find_fp8();
    case QuantiseRule::fp8_exponents:
      return find_exponents();
    case QuantiseRule::nvfp4:
    case QuantiseRule::nvfp4_divided:
      return find_nvfp4();
    case QuantiseRule::int4:
      return find_int4();
    default:
      return find_mx();
  }
}

void Encoder::find_fp8() {
  for (size_t block = 0; block < largest_.size(); ++block) {
    const float scale = (largest_[block] < least_ ? least_ : largest_[block]) / kLargestE4m3;
    stored_[block] = std::bit_cast<uint32_t>(scale);
    factors_[block] = scale;
  }
}

// 255 is no number. Where a block holds NaN, transformers takes 1 as for zeros.
void Encoder::find_exponents() {
  for (size_t block = 0; block < largest_.size(); ++block) {
    const float largest = largest_[block];
    const float inverse = largest > 0 ? 1 / (1 / largest * kLargestE4m3) : 1;
    if (std::isinf(inverse)) {
      stored_[block] = 2 * kBias + 1;
      factors_[block] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    const auto exponent = static_cast<int>(std::ceil(std::log2(std::max(inverse, 0x1p-126F))));
    stored_[block] = static_cast<uint32_t>(kBias + exponent);
    factors_[block] = std::ldexp(1.0F, -exponent);
  }
}

// Powers of two, by their exponents with the bias 127.
void Encoder::find_mx() {
  constexpr int32_t kHalfSmallest = 0x400000;  // 2^-127
  const size_t blocks = largest_.size();
  if (rule_ == QuantiseRule::mxfp8) {
    for (size_t block = 0; block < blocks; ++block) {
      const float scale = largest_[block] / kLargestE4m3;
      bits_[block] = std::min((std::bit_cast<int32_t>(scale) + 0x7fffff) >> 23, 2 * kBias);
    }
  } else if (rule_ == QuantiseRule::mxfp4_up) {
    for (size_t block = 0; block < blocks; ++block) {
      const float scale = largest_[block] / kLargestE2m1;
      bits_[block] = (std::bit_cast<int32_t>(scale) + 0x7fffff) >> 23;
    }
  } else {
    for (size_t block = 0; block < blocks; ++block) {
      const auto largest = std::bit_cast<int32_t>(largest_[block]);
      bits_[block] = std::max(((largest + 0x200000) >> 23) - 2, 0);
    }
  }
  // The logarithm is rounded, and meets a whole number by that, but of fp32 alone.
  const bool is_rounded = rule_ == QuantiseRule::mxfp8 && dtype_ == DType::f32;
  for (size_t block = 0; is_rounded && block < blocks; ++block) {
    const float scale = largest_[block] / kLargestE4m3;
    if (!(scale > 0)) continue;
    const float exponent = std::ceil(std::log2(scale));
    bits_[block] = kBias + static_cast<int>(std::clamp<float>(exponent, -kBias, kBias));
  }
  for (size_t block = 0; block < blocks; ++block) {
    const int32_t biased = bits_[block];
    stored_[block] = static_cast<uint32_t>(biased);
    const int32_t exponent = multiplies_ ? 2 * kBias - biased : biased;
    const int32_t factor = exponent <= 0 ? kHalfSmallest : exponent << 23;
    const bool is_nothing = rule_ == QuantiseRule::mxfp4_up && biased == 0;
    factors_[block] = is_nothing ? 0 : std::bit_cast<float>(factor);
  }
}

// Scales that are codes themselves. Each loop is one of vectors, which a choice in it is not.
void Encoder::find_nvfp4() {
  const bool divides = rule_ == QuantiseRule::nvfp4_divided;
  const auto blocks = static_cast<int64_t>(largest_.size());
  std::vector<float>& scales = largest_;
  const float by = divides ? kLargestE2m1 : kLargestE2m1 * global_;
  for (float& scale : scales) scale /= by;
  if (divides) {
    for (float& scale : scales) scale = global_ * rounded(scale);
  } else {
    for (float& scale : scales) scale = scale == 0 ? 1 : scale;
    for (float& scale : scales) scale = scale < kLeastScale ? kLeastScale : scale;
  }
  codes_.resize(scales.size());
  constexpr float kOne = 1;
  for (int64_t first = 0; first < blocks; first += kEncodedAtOnce) {
    const int64_t count = std::min(kEncodedAtOnce, blocks - first);
    encode_floats(QuantiseRule::fp8, {scales.data() + first, count, count}, &kOne, false,
                  codes_.data() + first);
  }
  constexpr uint32_t kEighth = 0x20;
  for (size_t i = 0; i < scales.size(); ++i) stored_[i] = std::to_integer<uint32_t>(codes_[i]);
  if (divides) std::ranges::replace(stored_, 0U, kEighth);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = e4m3_float(0, static_cast<int32_t>(stored_[i]));
  }
  if (divides) {
    for (size_t i = 0; i < scales.size(); ++i) factors_[i] = scales[i] / global_;
  } else {
    for (size_t i = 0; i < scales.size(); ++i) factors_[i] = scales[i] * global_;
  }
}

float Encoder::rounded(float value) const { return rounded_to(value, dtype_); }

void Encoder::find_int4() {
  const size_t blocks = largest_.size();
  for (size_t block = 0; block < blocks; ++block)
    factors_[block] = largest_[block] / kHalfRangeInt4;
  if (dtype_ == DType::bf16) {
    const float epsilon = epsilon_of(dtype_);
    for (size_t block = 0; block < blocks; ++block) {
      const float scale = rounded_to_bf16(factors_[block]);
      factors_[block] = scale == 0 ? epsilon : scale;
      stored_[block] = std::bit_cast<uint32_t>(factors_[block]) >> 16;
    }
    return;
  }
  for (size_t block = 0; block < blocks; ++block) store_int4(block, rounded(factors_[block]));
}

void Encoder::find_int4_zeros(const ValueRows& rows, int64_t width) {
  std::vector<float>& least = factors_;
  largest_.resize(least.size());
  each_piece(rows, 0, width, [&](const BlockedRow& piece, int64_t first) {
    const auto block = first / width;
    find_extremes(piece, least.data() + block, largest_.data() + block);
  });
  for (size_t block = 0; block < largest_.size(); ++block) {
    const float scale = rounded(rounded(largest_[block] - least[block]) / kRangeInt4);
    const float zero =
        std::clamp(rounded(kLowInt4 - rounded(least[block] / scale)), kLowInt4, kHighInt4);
    const bool is_any = scale == 0 || std::isnan(zero);
    zeros_[block] = is_any ? 0 : zero + kToWhole - kToWhole;
    store_int4(block, scale);
  }
}

void Encoder::store_int4(size_t block, float scale) {
  if (scale == 0) scale = epsilon_of(dtype_);
  factors_[block] = scale;
  stored_[block] =
      dtype_ == DType::bf16 ? std::bit_cast<uint32_t>(scale) >> 16 : bits_as(scale, dtype_);
}

float largest_magnitude(const std::byte* values, DType dtype, int64_t count) {
  int32_t bits = 0;
  raise_largest(values, dtype, count, count, &bits);
  float largest = 0;
  magnitudes({&bits, 1}, dtype, &largest);
  return largest;
}

}  // namespace ferry
