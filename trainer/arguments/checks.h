// Checks of argument values and combinations.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/model/pipeline_checks.h"

namespace ferry {

constexpr int64_t kMostSize = int64_t{1} << 40;  // for any size: products of three fit in 128 bits

/// Throws invalid with the message unless `fits`.
template <typename... Args>
void check_fits(bool fits, fmt::format_string<Args...> format, Args&&... args) {
  if (!fits) fail(ErrorKind::invalid, format, std::forward<Args>(args)...);
}

/// Throws invalid unless `number` is divisible by `ranks`, naming rank counts that would work.
inline void check_splits(int64_t number, std::string_view what, int64_t ranks,
                         std::string_view flag) {
  if (number % ranks == 0) return;
  fail(ErrorKind::invalid, "{} {} cannot be split over {} {}: for {}, {}", number, what, flag,
       ranks, flag, those_that_fit(1, number, [&](int64_t n) { return number % n == 0; }));
}

inline void check_size(std::string_view flag, int64_t value, int64_t least = 1,
                       int64_t most = kMostSize) {
  check_fits(value >= least && value <= most, "{} {}: must be a whole number from {} to {}", flag,
             value, least, most);
}

/// Throws invalid if more than one of these was given.
inline void check_one_of(std::initializer_list<std::pair<std::string_view, bool>> flags) {
  std::string_view first;
  for (const auto& [flag, given] : flags) {
    if (!given) continue;
    check_fits(first.empty(), "{} and {} exclude each other: leave one out", first, flag);
    first = flag;
  }
}

}  // namespace ferry
