// A value in memory that need not be aligned.
#pragma once

#include <cstddef>
#include <cstring>

namespace ferry {

template <typename T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace ferry
