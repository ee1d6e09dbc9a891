// Kernels that compute nothing and count what they would: how much memory and work something takes
// is told by the code that does it.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace ferry::kernels {

/// Memory that it gives has addresses and cannot be touched.
class PlanningKernels final : public Kernels {
 public:
  /// In the place of those of a device of this kind.
  explicit PlanningKernels(DeviceKind kind = DeviceKind::host) : kind_(kind) {}

  DeviceKind kind() const noexcept override { return kind_; }
  /// Bytes that were allocated, whether or not they still are.
  int64_t bytes() const noexcept { return bytes_; }
  /// Multiplications and additions of matrix products and attention, each counted as one.
  double operations() const noexcept { return operations_; }

  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void*, void*, size_t) override {}
  void download(const void*, void*, size_t) override {}
  void wait() override {}

  void run(const Matmul& op) override;
  void run(const GroupedMatmul& op) override;
  void run(const GroupedMatmulGradient& op) override;
  void run(const AttentionForward& op) override;
  void run(const AttentionBackward& op) override;
  void run(const NormForward&) override {}
  void run(const NormBackward&) override {}
  void run(const EmbeddingForward&) override {}
  void run(const EmbeddingBackward&) override {}
  void run(const Rotary&) override {}
  void run(const AttentionMerge&) override {}
  void run(const ActivationForward&) override {}
  void run(const ActivationBackward&) override {}
  void run(const CrossEntropy&) override {}
  void run(const LogitMaximum&) override {}
  void run(const LogitSums&) override {}
  void run(const CrossEntropyGradient&) override {}
  void run(const RouterForward&) override {}
  void run(const RouterBackward&) override {}
  void run(const ZLoss&) override {}
  void run(const ExpertCounts&) override {}
  void run(const BalanceLoss&) override {}
  void run(const ExpertOrder&) override {}
  void run(const ExpertBiasStep&) override {}
  void run(const GatherRows&) override {}
  void run(const CombineRows&) override {}
  void run(const GatherNumbers&) override {}
  void run(const Copy&) override {}
  void run(const CopyRows&) override {}
  void run(const Clear&) override {}
  void run(const Add&) override {}
  void run(const Scale&) override {}
  void run(const GateRows&) override {}
  void run(const GateRowsBackward&) override {}
  void run(const SumRows&) override {}
  void run(const Dropout&) override {}
  void run(const SumOfSquares&) override {}
  void run(const WeightedSum&) override {}
  void run(const FillNormal&) override {}
  void run(const FillConstant&) override {}
  void run(const ClipScale&) override {}
  void run(const AdamStep&) override {}
  void run(const SgdStep&) override {}
  void run(const AdemamixStep&) override {}

 private:
  DeviceKind kind_;
  int64_t bytes_ = 0;
  double operations_ = 0;
  // No process has memory there: bits 48 to 63 are neither all zeros nor all ones, and bit 55 alone
  // tells of a kernel's addresses where the others are ignored.
  uintptr_t next_address_ = uintptr_t{0x1080} << 48;
};

}  // namespace ferry::kernels
