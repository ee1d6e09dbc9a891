// The reference implementation of every operation, on the CPU.
//
// This header and the sources that include it are compiled once for each instruction set, each in
// its own namespace; targets.h selects one. They define nothing outside of that namespace, and use
// nothing from the standard library that would be compiled as a separate function: the linker keeps
// only one copy of such a function, perhaps one that the machine cannot run.
#pragma once

#include "kernels/cpu/host_kernels.h"
#include "kernels/cpu/team.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

class CpuKernels final : public HostKernels {
 public:
  explicit CpuKernels(int threads) : HostKernels(threads), team_(threads) {}

  void run(const Matmul& x) override;
  void run(const GroupedMatmul& x) override;
  void run(const GroupedMatmulGradient& x) override;
  void run(const GroupedBias& x) override;
  void run(const GroupedBiasGradient& x) override;
  void run(const NormForward& x) override;
  void run(const NormBackward& x) override;
  void run(const EmbeddingForward& x) override;
  void run(const EmbeddingBackward& x) override;
  void run(const Rotary& x) override;
  void run(const AttentionForward& x) override;
  void run(const AttentionMerge& x) override;
  void run(const AttentionSink& x) override;
  void run(const AttentionSinkGradient& x) override;
  void run(const AttentionBackward& x) override;
  void run(const ActivationForward& x) override;
  void run(const ActivationBackward& x) override;
  void run(const CrossEntropy& x) override;
  void run(const LogitMaximum& x) override;
  void run(const LogitSums& x) override;
  void run(const CrossEntropyGradient& x) override;
  void run(const RouterForward& x) override;
  void run(const RouterBackward& x) override;
  void run(const ZLoss& x) override;
  void run(const ExpertCounts& x) override;
  void run(const BalanceLoss& x) override;
  void run(const ChosenRanks& x) override;
  void run(const ExpertOrder& x) override;
  void run(const ExpertBiasStep& x) override;
  void run(const GatherRows& x) override;
  void run(const CombineRows& x) override;
  void run(const GatherNumbers& x) override;
  void run(const Copy& x) override;
  void run(const CopyRows& x) override;
  void run(const Clear& x) override;
  void run(const Add& x) override;
  void run(const Scale& x) override;
  void run(const GateRows& x) override;
  void run(const GateRowsBackward& x) override;
  void run(const SumRows& x) override;
  void run(const Dropout& x) override;
  void run(const SumOfSquares& x) override;
  void run(const WeightedSum& x) override;
  void run(const FillNormal& x) override;
  void run(const FillConstant& x) override;
  void run(const ClipScale& x) override;
  void run(const AdamStep& x) override;
  void run(const SgdStep& x) override;
  void run(const AdemamixStep& x) override;
  void run(const AbsoluteMaximum& x) override;
  void run(const CurrentScale& x) override;
  void run(const DelayedScales& x) override;
  void run(const Quantize& x) override;
  void run(const Float8Matmul& x) override;
  void run(const QuantizeEach& x) override;
  void run(const GroupedFloat8Matmul& x) override;
  void run(const GroupedTranspose& x) override;
  void run(const GroupedFloat8Gradient& x) override;

 private:
  void run(const Product& p);
  /// Rows of both factors are `stride` codes apart.
  void multiply(const Float8Matmul& x, int64_t stride);
  bool multiply(const Product& p);
  bool multiply_deep(const Product& p);
  bool multiply_spread(Product p);
  void multiply_converted(const Product& p);

  Team team_;
};

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
