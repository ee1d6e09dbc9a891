// How operations of a GPU are timed, on numbers at random.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cuda/operations.h"

namespace ferry::measuring {

using namespace ferry::kernels;

/// An array on the device with random numbers.
class Numbers {
 public:
  Numbers(cuda::Device& device, int64_t count, Type type = Type::bf16)
      : memory_(device.allocate(static_cast<size_t>(count * size_bytes(type)))), type_(type) {
    cuda::run(device, FillNormal{.count = count, .key = next_key(), .y = *this});
  }
  operator Array() const { return {memory_.get(), type_}; }
  operator ConstArray() const { return {memory_.get(), type_}; }

 private:
  static uint64_t next_key() {
    static uint64_t key = 0;
    return ++key;
  }
  std::shared_ptr<void> memory_;
  Type type_;
};

/// The median time of one run, in seconds. All are queued before any is waited for.
template <typename Run>
double seconds(cuda::Device& device, const Run& run) {
  constexpr size_t kRuns = 12, kWarm = 2;
  std::vector<cudaEvent_t> events(kRuns + 1);
  for (auto& event : events) cuda::check(cudaEventCreate(&event), "event");
  for (size_t i = 0; i < kRuns; ++i) {
    cuda::check(cudaEventRecord(events[i], device.stream()), "event");
    run();
  }
  cuda::check(cudaEventRecord(events.back(), device.stream()), "event");
  cuda::check(cudaEventSynchronize(events.back()), "what is timed");
  std::vector<float> times;
  for (size_t i = kWarm; i < kRuns; ++i) {
    float time = 0;
    cuda::check(cudaEventElapsedTime(&time, events[i], events[i + 1]), "event");
    times.push_back(time);
  }
  for (const auto& event : events) cuda::check(cudaEventDestroy(event), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

}  // namespace ferry::measuring
