// Steps of optimizers over runs of elements.
#pragma once

#include <array>
#include <vector>

#include "kernels/array.h"

namespace ferry::kernels {

/// What a step makes of the norm of a gradient, which is the root of its sum of squares over the
/// loss scale: *scale becomes clip / loss_scale, where clip is max_norm / (norm + 1e-6) or 1, where
/// that is less (or max_norm 0); *is_skipped becomes 0, or 1 where the norm is not finite.
/// Source: megatron/core/optimizer/clip_grads.py (clip_grad_by_total_norm_fp32).
struct ClipScale {
  const double* sum_of_squares = nullptr;
  double max_norm = 1;
  double loss_scale = 1;  // gradients are that many times too large
  float* scale = nullptr;
  float* is_skipped = nullptr;
};

/// Neighbouring parameters with the same rates.
struct ParameterRun {
  int64_t count = 0;
  ConstArray gradient;
  float* parameter = nullptr;  // fp32; null where there are remainders
  Array copy = {};             // the parameter in the model's type; none where that is fp32
  /// What makes fp32 parameters of `copy`, which is bf16 then: their bits are those of the copy, as
  /// the upper 16, plus this number. A step rounds the parameter to the copy, to nearest even, as
  /// it does without remainders; the one remainder that does not fit, 2^15 where it lay halfway, is
  /// 2^15 - 1: the parameter goes one step of fp32 towards its copy.
  int16_t* remainder = nullptr;
  std::array<Array, 3> states = {};  // each optimizer says which
  double learning_rate = 0;
  double weight_decay = 0;
};

/// What every step has. Gradients count times `gradient_scale`; where *is_skipped is not zero
/// nothing changes. Both may be null, and lie in the memory of the device, so that no step waits
/// for the host to learn a norm. A GPU takes many runs at once: between matrices lie vectors, which
/// are small and have rates of their own.
struct StepInput {
  std::vector<ParameterRun> runs;
  const float* gradient_scale = nullptr;
  const float* is_skipped = nullptr;
};

/// AdamW (Loshchilov and Hutter 2019) as Apex's FusedAdam computes it: the weight decay is added to
/// the update. As a factor of the parameter, 1 - rate · decay would be 1 in fp32 where the product
/// is below 3e-8, as it is at the end of many schedules. Without `decoupled` the weight decay is a
/// part of the gradient (Adam with L2). States: the first and the second moment. Those of 16 bits
/// are rounded to nearest even when they are stored; the step goes by those before.
struct AdamStep {
  StepInput step;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  int64_t number = 1;  // of the step, from 1, for the corrections of the bias
  bool decoupled = true;
};

/// SGD with momentum as torch.optim.SGD: momentum = m · momentum + gradient, from `number` 2 on;
/// the first step sets it to the gradient. State: the momentum, in fp32; none without.
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
