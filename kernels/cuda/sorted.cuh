// Stable sort of pairs of a key and a number by key.
#pragma once

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda {

struct Sorted {
  const int32_t* keys;
  const int32_t* numbers;
  float* more;
};

/// fill(keys, numbers) queues an operation that sets `count` of both; keys are below `limit`. The
/// result is in the device's workspace, followed by `more` floats.
template <typename Fill>
Sorted sort_pairs(Device& device, int64_t count, int64_t limit, const Fill& fill,
                  int64_t more = 0) {
  const int bits = std::bit_width(static_cast<uint64_t>(limit));
  const auto items = static_cast<int>(count);
  size_t scratch_bytes = 0;
  int32_t* const none = nullptr;
  check(cub::DeviceRadixSort::SortPairs(nullptr, scratch_bytes, none, none, none, none, items, 0,
                                        bits, device.stream()),
        "sort");
  const auto padded = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  const size_t each = padded(static_cast<size_t>(count) * sizeof(int32_t));
  const size_t end = 4 * each + padded(scratch_bytes);
  auto* const memory =
      static_cast<std::byte*>(device.workspace(end + static_cast<size_t>(more) * sizeof(float)));
  const auto array = [&](size_t i) { return reinterpret_cast<int32_t*>(memory + i * each); };
  fill(array(0), array(1));
  check(cub::DeviceRadixSort::SortPairs(memory + 4 * each, scratch_bytes, array(0), array(2),
                                        array(1), array(3), items, 0, bits, device.stream()),
        "sort");
  return {array(2), array(3), reinterpret_cast<float*>(memory + end)};
}

}  // namespace ferry::kernels::cuda
