#include "ckpt/engine/elements/halves.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr int64_t kBlock = 1024;  // elements that are brought to one type at once

using Numbers = std::array<int16_t, kBlock>;
using Floats = std::array<float, kBlock>;

// Calls row(in, out, count, in_stride, out_stride) for parts of the innermost loops of at most
// kBlock elements; stops when one gives false.
template <typename Row>
bool for_each_row(const std::byte* in, std::byte* out, const std::vector<StridedLoop>& loops,
                  size_t level, const Row& row) {
  if (level + 1 < loops.size()) {
    for (int64_t i = 0; i < loops[level].count; ++i) {
      const std::byte* from = in + i * loops[level].in_stride;
      if (!for_each_row(from, out + i * loops[level].out_stride, loops, level + 1, row)) {
        return false;
      }
    }
    return true;
  }
  const StridedLoop last = loops.empty() ? StridedLoop{1, 0, 0} : loops.back();
  for (int64_t i = 0; i < last.count; i += kBlock) {
    const int64_t count = std::min(kBlock, last.count - i);
    if (!row(in + i * last.in_stride, out + i * last.out_stride, count, last.in_stride,
             last.out_stride)) {
      return false;
    }
  }
  return true;
}

// False when one is not a remainder.
bool load_numbers(const std::byte* in, int64_t stride, DType dtype, int64_t count,
                  Numbers& numbers) {
  if (dtype == DType::i16) {
    for (int64_t i = 0; i < count; ++i) std::memcpy(&numbers[i], in + i * stride, sizeof(int16_t));
    return true;
  }
  bool all = true;
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, in + i * stride, sizeof value);
    const bool fits = value >= -32768.0F && value <= 32767.0F;  // not of a NaN
    numbers[i] = fits ? static_cast<int16_t>(value) : int16_t{0};
    all &= fits && static_cast<float>(numbers[i]) == value;
  }
  return all;
}

// Calls put(number, place) for each element. False when one is not a remainder.
template <typename Put>
bool put_numbers(const std::byte* in, DType in_dtype, std::byte* out,
                 const std::vector<StridedLoop>& loops, const Put& put) {
  return for_each_row(in, out, loops, 0,
                      [&](const std::byte* from, std::byte* to, int64_t count, int64_t in_stride,
                          int64_t out_stride) {
                        Numbers numbers;
                        if (!load_numbers(from, in_stride, in_dtype, count, numbers)) return false;
                        for (int64_t i = 0; i < count; ++i) put(numbers[i], to + i * out_stride);
                        return true;
                      });
}

// The halves of elements, brought to fp32 first.
template <typename Take>
void take(const std::byte* in, DType in_dtype, std::byte* out,
          const std::vector<StridedLoop>& loops, const Take& half_of) {
  for_each_row(in, out, loops, 0,
               [&](const std::byte* from, std::byte* to, int64_t count, int64_t in_stride,
                   int64_t out_stride) {
                 Floats values;
                 convert(from, in_stride, in_dtype, reinterpret_cast<std::byte*>(values.data()),
                         sizeof(float), DType::f32, count);
                 for (int64_t i = 0; i < count; ++i) {
                   const uint16_t half = half_of(std::bit_cast<uint32_t>(values[i]));
                   std::memcpy(to + i * out_stride, &half, sizeof half);
                 }
                 return true;
               });
}

}  // namespace

bool add_remainders(const std::byte* in, DType in_dtype, std::byte* out,
                    const std::vector<StridedLoop>& loops) {
  return put_numbers(in, in_dtype, out, loops, [](int16_t number, std::byte* to) {
    uint32_t bits = 0;
    std::memcpy(&bits, to, sizeof bits);
    bits += static_cast<uint32_t>(int32_t{number});
    std::memcpy(to, &bits, sizeof bits);
  });
}

bool narrow_remainders(const std::byte* in, DType in_dtype, std::byte* out,
                       const std::vector<StridedLoop>& loops) {
  return put_numbers(in, in_dtype, out, loops, [](int16_t number, std::byte* to) {
    std::memcpy(to, &number, sizeof number);
  });
}

// Negative remainders belong to the next number up.
void take_upper(const std::byte* in, DType in_dtype, std::byte* out,
                const std::vector<StridedLoop>& loops) {
  take(in, in_dtype, out, loops,
       [](uint32_t bits) { return static_cast<uint16_t>((bits >> 16) + (bits >> 15 & 1)); });
}

void take_lower(const std::byte* in, DType in_dtype, std::byte* out,
                const std::vector<StridedLoop>& loops) {
  take(in, in_dtype, out, loops, [](uint32_t bits) { return static_cast<uint16_t>(bits); });
}

}  // namespace ferry
