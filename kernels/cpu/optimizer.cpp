#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

FERRY_INLINE UInt words_at(const void* from, Full) { return load_words(from); }
FERRY_INLINE UInt words_at(const void* from, int count) {
  uint16_t part[kLanes] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * sizeof(uint16_t));
  return load_words(part);
}
FERRY_INLINE void put_words(void* to, UInt words, Full) { store_words(to, words); }
FERRY_INLINE void put_words(void* to, UInt words, int count) {
  uint16_t part[kLanes];
  store_words(part, words);
  std::memcpy(to, part, static_cast<size_t>(count) * sizeof(uint16_t));
}

/// The fp32 parameters from `first` on, stored as a bf16 copy and a remainder.
template <typename Count>
FERRY_INLINE Float load_joined(const ParameterRun& x, int64_t first, Count n) {
  const UInt upper = words_at(static_cast<const BFloat16*>(x.copy.data) + first, n) << 16;
  const UInt remainder = (words_at(x.remainder + first, n) ^ 0x8000) - 0x8000;  // sign-extended
  return bits_of<Float>(upper + remainder);
}

template <typename Count>
FERRY_INLINE void store_split(const ParameterRun& x, int64_t first, Float value, Count n) {
  BFloat16* const copy = static_cast<BFloat16*>(x.copy.data) + first;
  store(copy, value, n);
  const Int rest = bits_of<Int>(bits_of<UInt>(value) - (words_at(copy, n) << 16));
  const Int most = Int{} + 0x7FFF, least = Int{} - 0x8000;  // only NaN beyond
  const Int bounded = rest > most ? most : rest < least ? least : rest;
  put_words(x.remainder + first, bits_of<UInt>(bounded), n);
}

/// update_of(run) returns a function update(i, n, gradient, parameter) that returns the new
/// parameter.
template <typename F>
FERRY_INLINE void step(const Team& team, const StepInput& input, const F& update_of) {
  if (input.is_skipped && *input.is_skipped != 0) return;
  const float scale = input.gradient_scale ? *input.gradient_scale : 1.0F;
  for (size_t run = 0; run < input.runs.size(); ++run) {
    const ParameterRun& x = input.runs[run];
    const auto update = update_of(x);
    with_types(x.gradient.type, x.copy.type, [&]<typename T, typename C>(T*, C*) {
      const auto* gradient = static_cast<const T*>(x.gradient.data);
      auto* copy = static_cast<C*>(x.copy.data);
      team.parts(x.count, 4 * kLanes, 1, [&](int64_t begin, int64_t end) {
        vectors(begin, end, [&](int64_t i, auto n) {
          const Float before = x.remainder ? load_joined(x, i, n) : load(x.parameter + i, n);
          const Float value = update(i, n, load(gradient + i, n) * scale, before);
          if (x.remainder) return store_split(x, i, value, n);
          store(x.parameter + i, value, n);
          if (copy) store(copy + i, value, n);
        });
      });
    });
  }
}

/// Stores and returns beta · moment + (1 - beta) · value.
template <typename Count>
FERRY_INLINE Float average(const Array& moment, int64_t first, Count n, float beta, float rest,
                           Float value) {
  const Float next = beta * load(moment, first, n) + rest * value;
  store(moment, first, next, n);
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
  const float beta1 = single(x.beta1), rest1 = single(1 - x.beta1);
  const float beta2 = single(x.beta2), rest2 = single(1 - x.beta2);
  const double first_correction = correction(x.beta1, x.number);
  const float root = single(1 / __builtin_sqrt(correction(x.beta2, x.number)));
  const float epsilon = single(x.epsilon);
  step(team_, x.step, [&](const ParameterRun& run) {
    const float rate = single(run.learning_rate / first_correction);
    const float lost = x.decoupled ? single(run.learning_rate * run.weight_decay) : 0.0F;
    const float decay = x.decoupled ? 0.0F : single(run.weight_decay);
    return [=, &run](int64_t i, auto n, Float gradient, Float parameter) {
      if (decay != 0) gradient += decay * parameter;
      const Float m = average(run.states[0], i, n, beta1, rest1, gradient);
      const Float v = average(run.states[1], i, n, beta2, rest2, gradient * gradient);
      return parameter - (rate * m / (square_root(v) * root + epsilon) + lost * parameter);
    };
  });
}

void CpuKernels::run(const SgdStep& x) {
  const float momentum = single(x.momentum);
  step(team_, x.step, [&](const ParameterRun& run) {
    const float rate = single(run.learning_rate), decay = single(run.weight_decay);
    auto* const buffer = static_cast<float*>(run.states[0].data);
    const bool is_first = x.number <= 1;
    return [=](int64_t i, auto n, Float gradient, Float parameter) {
      if (decay != 0) gradient += decay * parameter;
      if (buffer) {
        if (!is_first) gradient += momentum * load(buffer + i, n);
        store(buffer + i, gradient, n);
      }
      return parameter - rate * gradient;
    };
  });
}

// Bias correction applies to the fast and the second moment, not to the slow one; weight decay is
// decoupled.
void CpuKernels::run(const AdemamixStep& x) {
  const float beta1 = single(x.beta1), rest1 = single(1 - x.beta1);
  const float beta2 = single(x.beta2), rest2 = single(1 - x.beta2);
  const float beta3 = single(x.beta3), rest3 = single(1 - x.beta3);
  const float first_correction = single(1 / correction(x.beta1, x.number));
  const float root = single(1 / __builtin_sqrt(correction(x.beta2, x.number)));
  const float epsilon = single(x.epsilon), alpha = single(x.alpha);
  step(team_, x.step, [&](const ParameterRun& run) {
    const float rate = single(run.learning_rate), decay = single(run.weight_decay);
    return [=, &run](int64_t i, auto n, Float gradient, Float parameter) {
      const Float fast = average(run.states[0], i, n, beta1, rest1, gradient);
      const Float slow = average(run.states[1], i, n, beta3, rest3, gradient);
      const Float v = average(run.states[2], i, n, beta2, rest2, gradient * gradient);
      const Float update =
          (fast * first_correction + alpha * slow) / (square_root(v) * root + epsilon);
      return parameter - rate * (update + decay * parameter);
    };
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
