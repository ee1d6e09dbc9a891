#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// update(i, n, gradient, parameter) gives the new parameter.
template <typename F>
FERRY_INLINE void step(const Team& team, const StepInput& x, const F& update) {
  if (x.is_skipped && *x.is_skipped != 0) return;
  const float scale = x.gradient_scale ? *x.gradient_scale : 1.0F;
  with_types(x.gradient.type, x.copy.type, [&]<typename T, typename C>(T*, C*) {
    const auto* gradient = static_cast<const T*>(x.gradient.data);
    auto* copy = static_cast<C*>(x.copy.data);
    team.parts(x.count, 4 * kLanes, 1, [&](int64_t begin, int64_t end) {
      vectors(begin, end, [&](int64_t i, auto n) {
        const Float value = update(i, n, load(gradient + i, n) * scale, load(x.parameter + i, n));
        store(x.parameter + i, value, n);
        if (copy) store(copy + i, value, n);
      });
    });
  });
}

/// beta · moment + (1 - beta) · value, kept and returned.
template <typename Count>
FERRY_INLINE Float average(float* moment, Count n, float beta, float rest, Float value) {
  const Float next = beta * load(moment, n) + rest * value;
  store(moment, next, n);
  return next;
}

/// 1 - beta^number.
double correction(double beta, int64_t number) {
  double power = 1, factor = beta;
  for (auto rest = number; rest > 0; rest /= 2, factor *= factor) {
    if (rest % 2 != 0) power *= factor;
  }
  return 1 - power;
}

FERRY_INLINE float single(double value) { return static_cast<float>(value); }

}  // namespace

void CpuKernels::run(const ClipScale& x) {
  const double norm = __builtin_sqrt(*x.sum_of_squares) / x.loss_scale;
  const double clip = x.max_norm > 0 ? x.max_norm / (norm + 1e-6) : 1;
  *x.scale = single((clip < 1 ? clip : 1) / x.loss_scale);
  *x.is_skipped = __builtin_isfinite(norm) ? 0.0F : 1.0F;
}

void CpuKernels::run(const AdamStep& x) {
  const double rate = x.step.learning_rate;
  const float beta1 = single(x.beta1), rest1 = single(1 - x.beta1);
  const float beta2 = single(x.beta2), rest2 = single(1 - x.beta2);
  const float first_correction = single(rate / correction(x.beta1, x.number));
  const float root = single(1 / __builtin_sqrt(correction(x.beta2, x.number)));
  const float epsilon = single(x.epsilon);
  const float kept = x.decoupled ? single(1 - rate * x.step.weight_decay) : 1.0F;
  const float decay = x.decoupled ? 0.0F : single(x.step.weight_decay);
  step(team_, x.step, [&](int64_t i, auto n, Float gradient, Float parameter) {
    if (decay != 0) gradient += decay * parameter;
    const Float m = average(x.first_moment + i, n, beta1, rest1, gradient);
    const Float v = average(x.second_moment + i, n, beta2, rest2, gradient * gradient);
    return kept * parameter - first_correction * m / (square_root(v) * root + epsilon);
  });
}

void CpuKernels::run(const SgdStep& x) {
  const float rate = single(x.step.learning_rate), decay = single(x.step.weight_decay);
  const float momentum = single(x.momentum);
  step(team_, x.step, [&](int64_t i, auto n, Float gradient, Float parameter) {
    if (decay != 0) gradient += decay * parameter;
    if (x.momentum_buffer) {
      if (x.number > 1) gradient += momentum * load(x.momentum_buffer + i, n);
      store(x.momentum_buffer + i, gradient, n);
    }
    return parameter - rate * gradient;
  });
}

// The fast moment and the second one are corrected, the slow one is not; weight decay is decoupled.
void CpuKernels::run(const AdemamixStep& x) {
  const float beta1 = single(x.beta1), rest1 = single(1 - x.beta1);
  const float beta2 = single(x.beta2), rest2 = single(1 - x.beta2);
  const float beta3 = single(x.beta3), rest3 = single(1 - x.beta3);
  const float first_correction = single(1 / correction(x.beta1, x.number));
  const float root = single(1 / __builtin_sqrt(correction(x.beta2, x.number)));
  const float epsilon = single(x.epsilon), alpha = single(x.alpha);
  const float rate = single(x.step.learning_rate), decay = single(x.step.weight_decay);
  step(team_, x.step, [&](int64_t i, auto n, Float gradient, Float parameter) {
    const Float fast = average(x.fast_moment + i, n, beta1, rest1, gradient);
    const Float slow = average(x.slow_moment + i, n, beta3, rest3, gradient);
    const Float v = average(x.second_moment + i, n, beta2, rest2, gradient * gradient);
    const Float update =
        (fast * first_correction + alpha * slow) / (square_root(v) * root + epsilon);
    return parameter - rate * (update + decay * parameter);
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
