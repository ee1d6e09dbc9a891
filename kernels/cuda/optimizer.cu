#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// beta · moment + (1 - beta) · value, kept and returned.
__device__ float average(float& moment, float beta, float rest, float value) {
  moment = beta * moment + rest * value;
  return moment;
}

/// Elements of a type that is known only here, the same for all threads.
template <int W>
__device__ Pack<W> load_any(const Array& x, int64_t i) {
  if (x.type == Type::f32) return load<W>(static_cast<const float*>(x.data) + i);
  if (x.type == Type::bf16) return load<W>(static_cast<const bf16*>(x.data) + i);
  return load<W>(static_cast<const half*>(x.data) + i);
}
template <int W>
__device__ void store_any(const Array& x, int64_t i, const Pack<W>& value) {
  if (x.type == Type::f32) return store<W>(static_cast<float*>(x.data) + i, value);
  if (x.type == Type::bf16) return store<W>(static_cast<bf16*>(x.data) + i, value);
  store<W>(static_cast<half*>(x.data) + i, value);
}

struct Adam {
  Array first_moment, second_moment;
  float beta1, rest1, beta2, rest2, rate, root, epsilon, kept, decay;
  template <int W>
  __device__ void at(int64_t i, const Pack<W>& gradient, Pack<W>& parameter) const {
    auto m = load_any<W>(first_moment, i), v = load_any<W>(second_moment, i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = gradient.v[j] + decay * parameter.v[j];
      average(m.v[j], beta1, rest1, g);
      average(v.v[j], beta2, rest2, g * g);
      parameter.v[j] = kept * parameter.v[j] - rate * m.v[j] / (sqrtf(v.v[j]) * root + epsilon);
    }
    store_any<W>(first_moment, i, m);
    store_any<W>(second_moment, i, v);
  }
};

struct Sgd {
  float* momentum_buffer;
  float rate, decay, momentum;
  bool is_first;
  template <int W>
  __device__ void at(int64_t i, Pack<W> gradient, Pack<W>& parameter) const {
    Pack<W> before{};
    if (momentum_buffer && !is_first) before = load<W>(momentum_buffer + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      gradient.v[j] += decay * parameter.v[j] + momentum * before.v[j];
      parameter.v[j] -= rate * gradient.v[j];
    }
    if (momentum_buffer) store<W>(momentum_buffer + i, gradient);
  }
};

// The fast moment and the second one are corrected, the slow one is not; weight decay is decoupled.
struct Ademamix {
  float *fast_moment, *slow_moment, *second_moment;
  float beta1, rest1, beta2, rest2, beta3, rest3, correction, root, epsilon, alpha, rate, decay;
  template <int W>
  __device__ void at(int64_t i, const Pack<W>& gradient, Pack<W>& parameter) const {
    auto fast = load<W>(fast_moment + i), slow = load<W>(slow_moment + i);
    auto v = load<W>(second_moment + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = gradient.v[j];
      average(fast.v[j], beta1, rest1, g);
      average(slow.v[j], beta3, rest3, g);
      average(v.v[j], beta2, rest2, g * g);
      const float update =
          (fast.v[j] * correction + alpha * slow.v[j]) / (sqrtf(v.v[j]) * root + epsilon);
      parameter.v[j] -= rate * (update + decay * parameter.v[j]);
    }
    store<W>(fast_moment + i, fast);
    store<W>(slow_moment + i, slow);
    store<W>(second_moment + i, v);
  }
};

struct Clip {
  ClipScale x;
  __device__ void operator()(int64_t) const {
    const double norm = sqrt(*x.sum_of_squares) / x.loss_scale;
    const double clip = x.max_norm > 0 ? x.max_norm / (norm + 1e-6) : 1;
    *x.scale = static_cast<float>((clip < 1 ? clip : 1) / x.loss_scale);
    *x.is_skipped = isfinite(norm) ? 0.0F : 1.0F;
  }
};

/// 16-bit words, moved as packs of elements are.
template <int W>
struct Words {
  uint16_t v[W];
};
template <int W>
__device__ Words<W> load_words(const void* from, int64_t i) {
  const auto* const words = static_cast<const uint16_t*>(from) + i;
  Words<W> x;
  if constexpr (W == 1) {
    x.v[0] = *words;
  } else {
    static_assert(sizeof x == sizeof(uint4));
    const uint4 all = *reinterpret_cast<const uint4*>(words);
    memcpy(&x, &all, sizeof x);
  }
  return x;
}
template <int W>
__device__ void store_words(void* to, int64_t i, const Words<W>& x) {
  auto* const words = static_cast<uint16_t*>(to) + i;
  if constexpr (W == 1) {
    *words = x.v[0];
  } else {
    uint4 all;
    memcpy(&all, &x, sizeof x);
    *reinterpret_cast<uint4*>(words) = all;
  }
}

/// The gradients of a step, times their scale.
template <typename T>
struct Gradients {
  const T* data;
  const float *scale, *skips;  // numbers on the device; null: 1 and 0
  __device__ bool are_skipped() const { return skips && *skips != 0; }
  template <int W>
  __device__ Pack<W> at(int64_t i) const {
    const float factor = scale ? *scale : 1.0F;
    auto g = load<W>(data + i);
#pragma unroll
    for (int j = 0; j < W; ++j) g.v[j] *= factor;
    return g;
  }
};

/// kernels/optimizer.h says what parameters are whose halves are a bf16 copy and a remainder.
template <typename T, typename Rule>
struct SplitUpdate {
  Gradients<T> gradients;
  void* copy;
  int16_t* remainder;
  Rule rule;
  template <int W>
  __device__ void at(int64_t i) const {
    if (gradients.are_skipped()) return;
    Words<W> upper = load_words<W>(copy, i), lower = load_words<W>(remainder, i);
    Pack<W> value;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const int number = static_cast<int16_t>(lower.v[j]);
      value.v[j] = __uint_as_float((static_cast<unsigned>(upper.v[j]) << 16) +
                                   static_cast<unsigned>(number));
    }
    rule.template at<W>(i, gradients.template at<W>(i), value);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      upper.v[j] = __bfloat16_as_ushort(from_float<bf16>(value.v[j]));
      const int rest =
          static_cast<int>(__float_as_uint(value.v[j]) - (static_cast<unsigned>(upper.v[j]) << 16));
      lower.v[j] = static_cast<uint16_t>(max(-0x8000, min(rest, 0x7FFF)));
    }
    store_words<W>(copy, i, upper);
    store_words<W>(remainder, i, lower);
  }
};

template <typename T, typename C, typename Rule>
struct Update {
  Gradients<T> gradients;
  C* copy;
  float* parameter;
  Rule rule;
  template <int W>
  __device__ void at(int64_t i) const {
    if (gradients.are_skipped()) return;
    auto value = load<W>(parameter + i);
    rule.template at<W>(i, gradients.template at<W>(i), value);
    store<W>(parameter + i, value);
    if (copy) store<W>(copy + i, value);
  }
};

template <typename Rule>
void step(Device& device, const StepInput& x, std::initializer_list<const void*> states,
          const Rule& rule) {
  const bool packed = is_packed({x.gradient.data, x.copy.data, x.parameter, x.remainder}, {}) &&
                      is_packed(states, {});
  if (x.remainder != nullptr) {
    return with_type(x.gradient.type, [&]<typename T>(T*) {
      each_pack(device, x.count, packed,
                SplitUpdate<T, Rule>{{elements<T>(x.gradient), x.gradient_scale, x.is_skipped},
                                     x.copy.data,
                                     x.remainder,
                                     rule},
                "optimizer's step");
    });
  }
  with_types(x.gradient.type, x.copy.type, [&]<typename T, typename C>(T*, C*) {
    each_pack(device, x.count, packed,
              Update<T, C, Rule>{{elements<T>(x.gradient), x.gradient_scale, x.is_skipped},
                                 elements<C>(x.copy),
                                 x.parameter,
                                 rule},
              "optimizer's step");
  });
}

float single(double value) { return static_cast<float>(value); }

/// 1 - beta^number.
double correction(double beta, int64_t number) {
  return 1 - std::pow(beta, static_cast<double>(number));
}

}  // namespace

void run(Device& device, const ClipScale& x) {
  each(device, 1, Clip{x}, "the gradient's clipping");
}

void run(Device& device, const AdamStep& x) {
  const double rate = x.step.learning_rate;
  step(device, x.step, {x.first_moment.data, x.second_moment.data},
       Adam{.first_moment = x.first_moment,
            .second_moment = x.second_moment,
            .beta1 = single(x.beta1),
            .rest1 = single(1 - x.beta1),
            .beta2 = single(x.beta2),
            .rest2 = single(1 - x.beta2),
            .rate = single(rate / correction(x.beta1, x.number)),
            .root = single(1 / std::sqrt(correction(x.beta2, x.number))),
            .epsilon = single(x.epsilon),
            .kept = x.decoupled ? single(1 - rate * x.step.weight_decay) : 1.0F,
            .decay = x.decoupled ? 0.0F : single(x.step.weight_decay)});
}

void run(Device& device, const SgdStep& x) {
  step(device, x.step, {x.momentum_buffer},
       Sgd{.momentum_buffer = x.momentum_buffer,
           .rate = single(x.step.learning_rate),
           .decay = single(x.step.weight_decay),
           .momentum = single(x.momentum),
           .is_first = x.number <= 1});
}

void run(Device& device, const AdemamixStep& x) {
  step(device, x.step, {x.fast_moment, x.slow_moment, x.second_moment},
       Ademamix{.fast_moment = x.fast_moment,
                .slow_moment = x.slow_moment,
                .second_moment = x.second_moment,
                .beta1 = single(x.beta1),
                .rest1 = single(1 - x.beta1),
                .beta2 = single(x.beta2),
                .rest2 = single(1 - x.beta2),
                .beta3 = single(x.beta3),
                .rest3 = single(1 - x.beta3),
                .correction = single(1 / correction(x.beta1, x.number)),
                .root = single(1 / std::sqrt(correction(x.beta2, x.number))),
                .epsilon = single(x.epsilon),
                .alpha = single(x.alpha),
                .rate = single(x.step.learning_rate),
                .decay = single(x.step.weight_decay)});
}

}  // namespace ferry::kernels::cuda
