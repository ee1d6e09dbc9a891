// How far apart the values of two tensors are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ckpt/base/dtype.h"

namespace ferry::tool {

/// How far apart equal values may be. With neither, elements of one type must have the same bits.
struct Tolerance {
  std::optional<double> absolute;  // of |a - b|
  std::optional<double> relative;  // of |a - b| / max(|a|, |b|)

  bool none() const { return !absolute && !relative; }
};

struct ValueDifference {
  int64_t compared = 0;   // elements
  int64_t differing = 0;  // of these
  int64_t without = 0;    // differing ones whose difference is no number: NaN or infinity on a side
  double max_absolute = 0;
  double max_relative = 0;  // |a - b| / max(|a|, |b|)
  int64_t first = -1;       // position of the first differing element, in row-major order
  long double first_a = 0, first_b = 0;  // which hold every value of 64-bit integers
  bool has_values = true;                // false: of types that are compared by their bytes alone

  void join(const ValueDifference& other);
};

/// True for types whose elements are numbers to compare: all but complex and packed ones.
bool has_values(DType dtype) noexcept;

/// Compares the elements of two runs that begin at element `first` of their tensors. Without a
/// tolerance elements of one type are equal when their bits are; otherwise, and across types, when
/// their values are, or are within either tolerance, NaN being equal to NaN. Integers are compared
/// exactly. Types that have no values are compared by their bytes and must be the same.
ValueDifference compare(std::span<const std::byte> a, DType dtype_a, std::span<const std::byte> b,
                        DType dtype_b, int64_t first, const Tolerance& tolerance = {});

}  // namespace ferry::tool
