// Measures how long operations take on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/kernels.h"

namespace ferry::kernels::cuda {

/// Events between the operations of a stream; nothing waits for them until they are read.
class OperationTimes {
 public:
  explicit OperationTimes(Device& device) : device_(device) {}
  ~OperationTimes();
  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  /// Names the operation that was queued since the last call.
  void add(std::string name);
  /// Marks the start of what is queued next.
  void begin() { mark(); }
  std::vector<OperationTime> take();

 private:
  cudaEvent_t mark();

  Device& device_;
  cudaEvent_t last_ = nullptr;  // of all_
  struct Span {
    std::string name;
    cudaEvent_t begin, end;
  };
  std::deque<Span> spans_;
  std::vector<cudaEvent_t> all_;
  size_t used_ = 0;  // of all_
};

/// The unqualified name of a type: "NormForward".
template <typename Operation>
std::string name_of_operation() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const size_t begin = text.find("Operation = ") + 12;
  const size_t end = text.find_first_of(";]", begin);
  const std::string_view name = text.substr(begin, end - begin);
  return std::string(name.substr(name.rfind(':') + 1));
}

}  // namespace ferry::kernels::cuda
