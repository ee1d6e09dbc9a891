// The operations of a device, in the order in which they are asked for.
//
//   kernels.run(NormForward{.rows = tokens, .width = hidden, .x = x, .weight = w, .y = y, ...});
//
// cpu/ is the definition. Other devices queue what they are asked for: nothing here waits for them.
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

/// The memory of a device that is not the host's is full.
class OutOfDeviceMemory : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(const std::string& message) : message_(message) {}
  /// How much was asked for, and what the device has.
  const char* what() const noexcept override { return message_.what(); }

 private:
  std::runtime_error message_;  // whose copies share one text
};

/// Of all operations of a name.
struct OperationTime {
  std::string name;
  int64_t count = 0;
  double seconds = 0;
};

/// One rank's queue on one device. Each operation finds the results of those before it. Sizes that
/// contradict each other are the caller's error and are not looked for. Used by one thread at a
/// time.
///
/// **Bits.** The same build, machine and number of threads give the same bits, always: sums have a
/// fixed order.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// The host may read and write its own memory alone.
  virtual DeviceKind kind() const noexcept { return DeviceKind::host; }

  /// Memory of the device, aligned to cache lines, whose pages are taken when they are first
  /// written where the device can do so; all zero. It goes with its last owner. Throws
  /// std::bad_alloc, and OutOfDeviceMemory where that tells more.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;

  /// From the host's memory to the device's; `from` may change when it returns.
  virtual void upload(const void* from, void* to, size_t bytes) = 0;

  /// From the device's memory to the host's, after all that was asked for before. What it gives may
  /// be looked at once wait() of a later moment has returned.
  virtual void download(const void* from, void* to, size_t bytes) = 0;

  /// Returns when all that was asked for is done.
  virtual void wait() = 0;

  /// Whether the device has products of 8-bit numbers (float8.h). Hosts compute them from wider
  /// ones.
  virtual bool has_float8() const noexcept { return true; }

  /// Whether the device tells how long its operations take: where it can, at little cost.
  virtual void time_operations(bool) {}
  /// The times since the last call, once wait() has returned, the longest first.
  virtual std::vector<OperationTime> take_operation_times() { return {}; }

  /// Names operations and ranges for a profiler that watches the program; on hosts nothing does.
  virtual void name_operations(bool) {}
  /// Lets the profiler capture from here, or up to here.
  virtual void capture(bool) {}
  /// What is asked for until the range's end has this name for a profiler.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}

  virtual void run(const Matmul&) = 0;
  virtual void run(const GroupedMatmul&) = 0;
  virtual void run(const GroupedMatmulGradient&) = 0;
  virtual void run(const NormForward&) = 0;
  virtual void run(const NormBackward&) = 0;
  virtual void run(const EmbeddingForward&) = 0;
  virtual void run(const EmbeddingBackward&) = 0;
  virtual void run(const Rotary&) = 0;
  virtual void run(const AttentionForward&) = 0;
  virtual void run(const AttentionMerge&) = 0;
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
  virtual void run(const Quantise&) = 0;
  virtual void run(const Float8Matmul&) = 0;
};

/// Host memory and `threads` threads (0: one for each core), which take no signals.
std::unique_ptr<Kernels> cpu_kernels(int threads = 0);

}  // namespace ferry::kernels
