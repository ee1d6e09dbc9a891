// Every operation of kernels/ on a GPU: each queues its work on the device's stream and returns.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/kernels.h"

namespace ferry::kernels::cuda {

void run(Device& device, const GroupedBias& x);
void run(Device& device, const GroupedBiasGradient& x);
void run(Device& device, const NormForward& x);
void run(Device& device, const NormBackward& x);
void run(Device& device, const EmbeddingForward& x);
void run(Device& device, const EmbeddingBackward& x);
void run(Device& device, const Rotary& x);
void run(Device& device, const AttentionForward& x);
void run(Device& device, const AttentionMerge& x);
void run(Device& device, const AttentionSink& x);
void run(Device& device, const AttentionSinkGradient& x);
void run(Device& device, const AttentionBackward& x);
void run(Device& device, const ActivationForward& x);
void run(Device& device, const ActivationBackward& x);
void run(Device& device, const CrossEntropy& x);
void run(Device& device, const LogitMaximum& x);
void run(Device& device, const LogitSums& x);
void run(Device& device, const CrossEntropyGradient& x);
void run(Device& device, const RouterForward& x);
void run(Device& device, const RouterBackward& x);
void run(Device& device, const ZLoss& x);
void run(Device& device, const ExpertCounts& x);
void run(Device& device, const BalanceLoss& x);
void run(Device& device, const ChosenRanks& x);
void run(Device& device, const ExpertOrder& x);
void run(Device& device, const ExpertBiasStep& x);
void run(Device& device, const GatherRows& x);
void run(Device& device, const CombineRows& x);
void run(Device& device, const GatherNumbers& x);
void run(Device& device, const Copy& x);
void run(Device& device, const CopyRows& x);
void run(Device& device, const Clear& x);
void run(Device& device, const Add& x);
void run(Device& device, const Scale& x);
void run(Device& device, const GateRows& x);
void run(Device& device, const GateRowsBackward& x);
void run(Device& device, const SumRows& x);
void run(Device& device, const Dropout& x);
void run(Device& device, const SumOfSquares& x);
void run(Device& device, const WeightedSum& x);
void run(Device& device, const FillNormal& x);
void run(Device& device, const FillConstant& x);
void run(Device& device, const ClipScale& x);
void run(Device& device, const AdamStep& x);
void run(Device& device, const SgdStep& x);
void run(Device& device, const AdemamixStep& x);
void run(Device& device, const AbsoluteMaximum& x);
void run(Device& device, const CurrentScale& x);
void run(Device& device, const DelayedScales& x);
void run(Device& device, const Quantize& x);
void run(Device& device, const QuantizeEach& x);
void run(Device& device, const GroupedTranspose& x);

/// Whether two byte ranges of even size are equal. Waits for the result.
bool same_bytes(Device& device, const void* a, const void* b, int64_t bytes);

}  // namespace ferry::kernels::cuda
