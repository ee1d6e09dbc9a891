// The operations of a device, executed in order.
//
//   kernels.run(NormForward{.rows = tokens, .width = hidden, .x = x, .weight = w, .y = y, ...});
//
// cpu/ is the reference. Other devices queue operations without waiting.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "kernels/routing.h"

namespace ferry::kernels {

enum class DeviceKind : uint8_t { host, gpu };

/// Device memory (not host memory) is exhausted.
class OutOfDeviceMemory : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(const std::string& message) : message_(message) {}
  /// The size of the request and what the device has.
  const char* what() const noexcept override { return message_.what(); }

 private:
  std::runtime_error message_;  // copies share one string
};

/// Time of all operations of a name.
struct OperationTime {
  std::string name;
  int64_t count = 0;
  double seconds = 0;
};

/// One rank's queue on one device. Each operation sees the results of previous ones. Contradictory
/// sizes are the caller's error and are not detected. Used by one thread at a time.
///
/// **Bits.** The same build, machine and number of threads give the same bits, always: sums have a
/// fixed order.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// The host may access only host memory.
  virtual DeviceKind kind() const noexcept { return DeviceKind::host; }

  /// Allocates device memory, aligned to cache lines and zeroed, with pages committed on first
  /// write if the device can. Freed with its last owner. Throws std::bad_alloc, or
  /// OutOfDeviceMemory with details.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;

  /// Copies host memory to the device; `from` may change after it returns.
  virtual void upload(const void* from, void* to, size_t bytes) = 0;

  /// Copies device memory to the host, after all operations queued before. The result is available
  /// after a later wait().
  virtual void download(const void* from, void* to, size_t bytes) = 0;

  /// Waits for all queued operations.
  virtual void wait() = 0;

  /// Whether the device has FP8 products (float8.h). Hosts emulate them.
  virtual bool has_float8() const noexcept { return true; }
  /// Whether also those of groups of rows.
  virtual bool has_grouped_float8() const noexcept { return true; }

  /// Enables per-operation timing, if the device supports it; the overhead is small.
  virtual void time_operations(bool) {}
  /// The times since the last call, after wait(), longest first.
  virtual std::vector<OperationTime> take_operation_times() { return {}; }

  /// Names operations and ranges for a profiler; no effect on hosts.
  virtual void name_operations(bool) {}
  /// Starts or stops capturing by the profiler.
  virtual void capture(bool) {}
  /// Names the operations until end_range() for a profiler.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}

  virtual void run(const Matmul&) = 0;
  virtual void run(const GroupedMatmul&) = 0;
  virtual void run(const GroupedMatmulGradient&) = 0;
  virtual void run(const GroupedBias&) = 0;
  virtual void run(const GroupedBiasGradient&) = 0;
  virtual void run(const NormForward&) = 0;
  virtual void run(const NormBackward&) = 0;
  virtual void run(const EmbeddingForward&) = 0;
  virtual void run(const EmbeddingBackward&) = 0;
  virtual void run(const Rotary&) = 0;
  virtual void run(const AttentionForward&) = 0;
  virtual void run(const AttentionMerge&) = 0;
  virtual void run(const AttentionSink&) = 0;
  virtual void run(const AttentionSinkGradient&) = 0;
  virtual void run(const AttentionBackward&) = 0;
  virtual void run(const ActivationForward&) = 0;
  virtual void run(const ActivationBackward&) = 0;
  virtual void run(const CrossEntropy&) = 0;
  virtual void run(const LogitMaximum&) = 0;
  virtual void run(const LogitSums&) = 0;
  virtual void run(const CrossEntropyGradient&) = 0;
  virtual void run(const RouterForward&) = 0;
  virtual void run(const RouterBackward&) = 0;
  virtual void run(const ZLoss&) = 0;
  virtual void run(const ExpertCounts&) = 0;
  virtual void run(const BalanceLoss&) = 0;
  virtual void run(const ChosenRanks&) = 0;
  virtual void run(const ExpertOrder&) = 0;
  virtual void run(const ExpertBiasStep&) = 0;
  virtual void run(const GatherRows&) = 0;
  virtual void run(const CombineRows&) = 0;
  virtual void run(const GatherNumbers&) = 0;
  virtual void run(const Copy&) = 0;
  virtual void run(const CopyRows&) = 0;
  virtual void run(const Clear&) = 0;
  virtual void run(const Add&) = 0;
  virtual void run(const Scale&) = 0;
  virtual void run(const GateRows&) = 0;
  virtual void run(const GateRowsBackward&) = 0;
  virtual void run(const SumRows&) = 0;
  virtual void run(const Dropout&) = 0;
  virtual void run(const SumOfSquares&) = 0;
  virtual void run(const WeightedSum&) = 0;
  virtual void run(const FillNormal&) = 0;
  virtual void run(const FillConstant&) = 0;
  virtual void run(const ClipScale&) = 0;
  virtual void run(const AdamStep&) = 0;
  virtual void run(const SgdStep&) = 0;
  virtual void run(const AdemamixStep&) = 0;
  virtual void run(const AbsoluteMaximum&) = 0;
  virtual void run(const CurrentScale&) = 0;
  virtual void run(const DelayedScales&) = 0;
  virtual void run(const Quantize&) = 0;
  virtual void run(const Float8Matmul&) = 0;
  virtual void run(const QuantizeEach&) = 0;
  virtual void run(const GroupedFloat8Matmul&) = 0;
  virtual void run(const GroupedTranspose&) = 0;
  virtual void run(const GroupedFloat8Gradient&) = 0;
};

/// Kernels on host memory with `threads` threads (0: one per core), which block signals.
std::unique_ptr<Kernels> cpu_kernels(int threads = 0);

}  // namespace ferry::kernels
