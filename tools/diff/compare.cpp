#include "tools/diff/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ckpt/base/cast.h"

namespace ferry::tool {
namespace {

constexpr int64_t kBlock = 2048;  // elements: two blocks of doubles stay in the first-level cache

using Values = std::array<double, kBlock>;

void load(const std::byte* from, DType dtype, int64_t count, Values& values) {
  const int64_t size = size_bytes(dtype);
  if (can_convert(dtype, DType::f64)) {
    convert(from, size, dtype, reinterpret_cast<std::byte*>(values.data()), sizeof(double),
            DType::f64, count);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = load_as_double(from + i * size, dtype);
  }
}

void note(ValueDifference& result, int64_t position, double a, double b) {
  if (result.differing++ == 0) {
    result.first = position;
    result.first_a = a;
    result.first_b = b;
  }
  const double off = std::abs(a - b);
  if (!std::isfinite(off)) {
    ++result.without;
    return;
  }
  const double scale = std::max(std::abs(a), std::abs(b));
  result.max_absolute = std::max(result.max_absolute, off);
  if (scale > 0) result.max_relative = std::max(result.max_relative, off / scale);
}

bool is_within(double a, double b, double tolerance) {
  return a == b || std::abs(a - b) <= tolerance || (std::isnan(a) && std::isnan(b));
}

}  // namespace

bool has_values(DType dtype) noexcept {
  return dtype != DType::c64 && dtype != DType::c128 && dtype != DType::f4x2;
}

void ValueDifference::join(const ValueDifference& other) {
  if (other.first >= 0 && (first < 0 || other.first < first)) {
    first = other.first;
    first_a = other.first_a;
    first_b = other.first_b;
  }
  compared += other.compared;
  differing += other.differing;
  without += other.without;
  max_absolute = std::max(max_absolute, other.max_absolute);
  max_relative = std::max(max_relative, other.max_relative);
  has_values = has_values && other.has_values;
}

ValueDifference compare(std::span<const std::byte> a, DType dtype_a, std::span<const std::byte> b,
                        DType dtype_b, int64_t first, std::optional<double> tolerance) {
  const int64_t size_a = size_bytes(dtype_a), size_b = size_bytes(dtype_b);
  const bool same_type = dtype_a == dtype_b;
  const bool by_bits = same_type && !tolerance;
  ValueDifference result;
  result.has_values = has_values(dtype_a) && has_values(dtype_b);
  result.compared = static_cast<int64_t>(a.size()) / size_a;
  if (same_type && std::memcmp(a.data(), b.data(), a.size()) == 0) return result;
  Values values_a{}, values_b{};
  for (int64_t begin = 0; begin < result.compared; begin += kBlock) {
    const int64_t count = std::min(kBlock, result.compared - begin);
    const std::byte* at_a = a.data() + begin * size_a;
    const std::byte* at_b = b.data() + begin * size_b;
    if (same_type && std::memcmp(at_a, at_b, static_cast<size_t>(count * size_a)) == 0) continue;
    if (result.has_values) {
      load(at_a, dtype_a, count, values_a);
      load(at_b, dtype_b, count, values_b);
    }
    for (int64_t i = 0; i < count; ++i) {
      const double x = values_a[static_cast<size_t>(i)], y = values_b[static_cast<size_t>(i)];
      const bool equal =
          by_bits || !result.has_values
              ? std::memcmp(at_a + i * size_a, at_b + i * size_b, static_cast<size_t>(size_a)) == 0
              : is_within(x, y, tolerance.value_or(0));
      if (!equal) note(result, first + begin + i, x, y);
    }
  }
  return result;
}

}  // namespace ferry::tool
