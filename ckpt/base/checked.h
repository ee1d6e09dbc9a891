// Integer arithmetic on numbers that came from outside: overflow is an error, never a wrap.
#pragma once

#include <concepts>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {

/// a * b; corrupt when it overflows, naming `what` ("size of tensor x").
template <std::integral T>
T checked_multiply(T a, T b, std::string_view what) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) {
    fail(ErrorKind::corrupt, "{}: {} x {} does not fit in 64 bits", what, a, b);
  }
  return result;
}

/// a + b; corrupt when it overflows.
template <std::integral T>
T checked_add(T a, T b, std::string_view what) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) {
    fail(ErrorKind::corrupt, "{}: {} + {} does not fit in 64 bits", what, a, b);
  }
  return result;
}

}  // namespace ferry
