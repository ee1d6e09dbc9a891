// Optimizer steps over runs of elements.
#pragma once

#include <array>
#include <vector>

#include "kernels/array.h"

namespace ferry::kernels {

/// Computes the clipping factor of a step. The gradient norm is the root of its sum of squares
/// divided by the loss scale. *scale becomes clip / loss_scale, where clip = min(1, max_norm /
/// (norm + 1e-6)), or 1 if max_norm is 0; *is_skipped becomes 1 if the norm is not finite,
/// otherwise 0.
/// Source: megatron/core/optimizer/clip_grads.py (clip_grad_by_total_norm_fp32).
struct ClipScale {
  const double* sum_of_squares = nullptr;
  double max_norm = 1;
  double loss_scale = 1;  // factor in the gradients
  float* scale = nullptr;
  float* is_skipped = nullptr;
};

/// Contiguous parameters with the same rates.
struct ParameterRun {
  int64_t count = 0;
  ConstArray gradient;
  float* parameter = nullptr;  // fp32; null with remainders
  Array copy = {};             // the parameter in the model's type, unless that is fp32
  /// Combines with a bf16 `copy` to fp32 parameters: their bits are the copy's, as the upper 16,
  /// plus this number. A step rounds the parameter to the copy, to nearest even, as without
  /// remainders; the one remainder that does not fit, 2^15 for a value halfway, becomes 2^15 - 1:
  /// the parameter moves by one fp32 step towards its copy.
  int16_t* remainder = nullptr;
  std::array<Array, 3> states = {};  // see each optimizer
  double learning_rate = 0;
  double weight_decay = 0;
};

/// Common to all steps. Gradients are multiplied by `gradient_scale`; nothing changes if
/// *is_skipped is nonzero. Both may be null and are in device memory, so that a step need not wait
/// for the host to read a norm. Takes many runs at once, because the vectors between matrices are
/// small and have their own rates.
struct StepInput {
  std::vector<ParameterRun> runs;
  const float* gradient_scale = nullptr;
  const float* is_skipped = nullptr;
};

/// AdamW (Loshchilov and Hutter 2019) as in Apex's FusedAdam: the weight decay is added to the
/// update. (A factor 1 - rate · decay of the parameter would be 1 in fp32 for products below 3e-8,
/// as at the end of many schedules.) Without `decoupled` the weight decay is part of the gradient
/// (Adam with L2). States: the first and the second moment. 16-bit moments are rounded to nearest
/// even when stored; the step uses them before rounding.
struct AdamStep {
  StepInput step;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  int64_t number = 1;  // of the step, from 1, for bias correction
  bool decoupled = true;
};

/// SGD with momentum as torch.optim.SGD: momentum = m · momentum + gradient, from `number` 2 on;
/// the first step sets it to the gradient. State: the momentum, in fp32; none without momentum.
struct SgdStep {
  StepInput step;
  double momentum = 0;
  int64_t number = 1;
};

/// AdEMAMix (Pagliardini et al. 2024). States, in fp32: the fast, the slow and the second moment.
struct AdemamixStep {
  StepInput step;
  double beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 2, epsilon = 1e-8;
  int64_t number = 1;
};

}  // namespace ferry::kernels
