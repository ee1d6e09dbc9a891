#include "kernels/cuda/device/operation_times.h"

#include <algorithm>
#include <map>

namespace ferry::kernels::cuda {

OperationTimes::~OperationTimes() {
  for (cudaEvent_t event : all_) (void)cudaEventDestroy(event);
}

cudaEvent_t OperationTimes::mark() {
  if (used_ == all_.size()) {
    check(cudaEventCreate(&all_.emplace_back()), "making an event");
  }
  last_ = all_[used_++];
  check(cudaEventRecord(last_, device_.stream()), "recording an event");
  return last_;
}

void OperationTimes::add(std::string name) {
  const cudaEvent_t begin = last_;
  spans_.push_back({std::move(name), begin, mark()});
}

std::vector<OperationTime> OperationTimes::take() {
  std::map<std::string, OperationTime> sums;
  for (const Span& span : spans_) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, span.begin, span.end), "timing an operation");
    OperationTime& sum = sums[span.name];
    ++sum.count;
    sum.seconds += static_cast<double>(milliseconds) / 1000;
  }
  spans_.clear();
  used_ = 0;
  std::vector<OperationTime> times;
  for (auto& [name, sum] : sums) {
    sum.name = name;
    times.push_back(sum);
  }
  std::ranges::sort(times, std::ranges::greater(), &OperationTime::seconds);
  return times;
}

}  // namespace ferry::kernels::cuda
