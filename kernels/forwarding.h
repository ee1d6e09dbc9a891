// Base of kernels that handle all operations uniformly: forward, count or ignore them.
#pragma once

#include "kernels/kernels.h"

namespace ferry::kernels {

/// Overrides run() of each of the Operations with a call of Derived::forward(), a template or an
/// overload set.
template <typename Derived, typename... Operations>
class ForwardEach;

template <typename Derived>
class ForwardEach<Derived> : public Kernels {};

template <typename Derived, typename Operation, typename... Rest>
class ForwardEach<Derived, Operation, Rest...> : public ForwardEach<Derived, Rest...> {
 public:
  using ForwardEach<Derived, Rest...>::run;
  void run(const Operation& x) final { static_cast<Derived*>(this)->forward(x); }
};

/// All operations of Kernels.
template <typename Derived>
using ForwardingKernels =
    ForwardEach<Derived, Matmul, GroupedMatmul, GroupedMatmulGradient, GroupedBias,
                GroupedBiasGradient, NormForward, NormBackward, EmbeddingForward, EmbeddingBackward,
                Rotary, AttentionForward, AttentionMerge, AttentionSink, AttentionSinkGradient,
                AttentionBackward, ActivationForward, ActivationBackward, CrossEntropy,
                LogitMaximum, LogitSums, CrossEntropyGradient, RouterForward, RouterBackward, ZLoss,
                ExpertCounts, BalanceLoss, ChosenRanks, ExpertOrder, ExpertBiasStep, GatherRows,
                CombineRows, GatherNumbers, Copy, CopyRows, Clear, Add, Scale, GateRows,
                GateRowsBackward, SumRows, Dropout, SumOfSquares, WeightedSum, FillNormal,
                FillConstant, ClipScale, AdamStep, SgdStep, AdemamixStep, AbsoluteMaximum,
                CurrentScale, DelayedScales, Quantize, QuantizeEach, Float8Matmul,
                GroupedFloat8Matmul, GroupedTranspose, GroupedFloat8Gradient>;

}  // namespace ferry::kernels
