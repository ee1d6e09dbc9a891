#include "ops/diff/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr int64_t kBlock = 2048;  // elements: two blocks of doubles stay in the first-level cache

// Doubles hold the values of all types but 64-bit integers.
template <typename Number>
using Values = std::array<Number, kBlock>;

bool is_wide(DType dtype) { return dtype == DType::i64 || dtype == DType::u64; }

long double load_exact(const std::byte* at, DType dtype) {
  int64_t number = 0;
  if (!is_wide(dtype)) return load_as_double(at, dtype);
  std::memcpy(&number, at, sizeof(number));
  return dtype == DType::i64 ? static_cast<long double>(number)
                             : static_cast<long double>(static_cast<uint64_t>(number));
}

void load(const std::byte* from, DType dtype, int64_t count, Values<long double>& values) {
  const int64_t size = size_bytes(dtype);
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = load_exact(from + i * size, dtype);
  }
}

void load(const std::byte* from, DType dtype, int64_t count, Values<double>& values) {
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

template <typename Number>
void note(ValueDifference& result, int64_t position, Number a, Number b) {
  if (result.differing++ == 0) {
    result.first = position;
    result.first_a = a;
    result.first_b = b;
  }
  const auto off = static_cast<double>(std::abs(a - b));
  if (!std::isfinite(off)) {
    ++result.without;
    return;
  }
  const auto scale = static_cast<double>(std::max(std::abs(a), std::abs(b)));
  result.max_absolute = std::max(result.max_absolute, off);
  if (scale > 0) result.max_relative = std::max(result.max_relative, off / scale);
}

template <typename Number>
bool is_within(Number a, Number b, const Tolerance& tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  const Number off = std::abs(a - b), scale = std::max(std::abs(a), std::abs(b));
  return off <= static_cast<Number>(tolerance.absolute.value_or(0)) ||
         off <= static_cast<Number>(tolerance.relative.value_or(0)) * scale;
}

// One side's elements of a comparison.
struct Elements {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;

  int64_t size() const { return size_bytes(dtype); }
  const std::byte* at(int64_t element) const { return data + element * size(); }
};

template <typename Number>
void compare_elements(const Elements& a, const Elements& b, int64_t first,
                      const Tolerance& tolerance, ValueDifference& result) {
  const bool same_type = a.dtype == b.dtype;
  const bool by_bytes = !result.has_values || (same_type && tolerance.none());
  const auto same_bytes = [&](int64_t begin, int64_t count) {
    return std::memcmp(a.at(begin), b.at(begin), static_cast<size_t>(count * a.size())) == 0;
  };
  Values<Number> values_a{}, values_b{};
  for (int64_t begin = 0; begin < result.compared; begin += kBlock) {
    const int64_t count = std::min(kBlock, result.compared - begin);
    if (same_type && same_bytes(begin, count)) continue;
    if (result.has_values) {
      load(a.at(begin), a.dtype, count, values_a);
      load(b.at(begin), b.dtype, count, values_b);
    }
    for (int64_t i = 0; i < count; ++i) {
      const Number x = values_a[static_cast<size_t>(i)], y = values_b[static_cast<size_t>(i)];
      const bool equal = by_bytes ? same_bytes(begin + i, 1) : is_within(x, y, tolerance);
      if (!equal) note(result, first + begin + i, x, y);
    }
  }
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
                        DType dtype_b, int64_t first, const Tolerance& tolerance) {
  ValueDifference result;
  result.has_values = has_values(dtype_a) && has_values(dtype_b);
  result.compared = static_cast<int64_t>(a.size()) / size_bytes(dtype_a);
  if (dtype_a == dtype_b && std::memcmp(a.data(), b.data(), a.size()) == 0) return result;
  const Elements side_a{a.data(), dtype_a}, side_b{b.data(), dtype_b};
  if (is_wide(dtype_a) || is_wide(dtype_b)) {
    compare_elements<long double>(side_a, side_b, first, tolerance, result);
  } else {
    compare_elements<double>(side_a, side_b, first, tolerance, result);
  }
  return result;
}

}  // namespace ferry
