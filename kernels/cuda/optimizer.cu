#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// Stores and returns beta · moment + (1 - beta) · value.
__device__ float average(float& moment, float beta, float rest, float value) {
  moment = beta * moment + rest * value;
  return moment;
}

/// Elements of a type known at run time, uniform over threads.
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

// Each optimizer's rule has the values common to all runs of a step, and a Run with the others;
// at(run, i, gradient, parameter) updates parameters and states from index i on.

struct Adam {
  float beta1, rest1, beta2, rest2, root, epsilon;
  struct Run {
    Array first_moment, second_moment;
    float rate, lost, decay;
  };
  template <int W>
  __device__ void at(const Run& run, int64_t i, const Pack<W>& gradient, Pack<W>& parameter) const {
    auto m = load_any<W>(run.first_moment, i), v = load_any<W>(run.second_moment, i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = gradient.v[j] + run.decay * parameter.v[j];
      average(m.v[j], beta1, rest1, g);
      average(v.v[j], beta2, rest2, g * g);
      parameter.v[j] -=
          run.rate * m.v[j] / (sqrtf(v.v[j]) * root + epsilon) + run.lost * parameter.v[j];
    }
    store_any<W>(run.first_moment, i, m);
    store_any<W>(run.second_moment, i, v);
  }
};

struct Sgd {
  float momentum;
  bool is_first;
  struct Run {
    float* momentum_buffer;
    float rate, decay;
  };
  template <int W>
  __device__ void at(const Run& run, int64_t i, Pack<W> gradient, Pack<W>& parameter) const {
    Pack<W> before{};
    if (run.momentum_buffer && !is_first) before = load<W>(run.momentum_buffer + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      gradient.v[j] += run.decay * parameter.v[j] + momentum * before.v[j];
      parameter.v[j] -= run.rate * gradient.v[j];
    }
    if (run.momentum_buffer) store<W>(run.momentum_buffer + i, gradient);
  }
};

// Bias correction applies to the fast and the second moment, not to the slow one; weight decay is
// decoupled.
struct Ademamix {
  float beta1, rest1, beta2, rest2, beta3, rest3, correction, root, epsilon, alpha;
  struct Run {
    float *fast_moment, *slow_moment, *second_moment;
    float rate, decay;
  };
  template <int W>
  __device__ void at(const Run& run, int64_t i, const Pack<W>& gradient, Pack<W>& parameter) const {
    auto fast = load<W>(run.fast_moment + i), slow = load<W>(run.slow_moment + i);
    auto v = load<W>(run.second_moment + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = gradient.v[j];
      average(fast.v[j], beta1, rest1, g);
      average(slow.v[j], beta3, rest3, g);
      average(v.v[j], beta2, rest2, g * g);
      const float update =
          (fast.v[j] * correction + alpha * slow.v[j]) / (sqrtf(v.v[j]) * root + epsilon);
      parameter.v[j] -= run.rate * (update + run.decay * parameter.v[j]);
    }
    store<W>(run.fast_moment + i, fast);
    store<W>(run.slow_moment + i, slow);
    store<W>(run.second_moment + i, v);
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

/// 16-bit words, moved like packs of elements.
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
    store_16_bytes(reinterpret_cast<uint4*>(words), all);
  }
}

template <int W, typename T>
__device__ Pack<W> load_scaled(const T* x, int64_t i, float factor) {
  auto y = load<W>(x + i);
#pragma unroll
  for (int j = 0; j < W; ++j) y.v[j] *= factor;
  return y;
}

/// A run of parameters stored as a bf16 copy and a remainder (kernels/optimizer.h).
template <typename T, typename R>
struct SplitRun {
  using Rule = R;
  const T* gradient;
  void* copy;
  int16_t* remainder;
  typename Rule::Run own;
  template <int W>
  __device__ void at(const Rule& rule, float factor, int64_t i) const {
    Words<W> upper = load_words<W>(copy, i), lower = load_words<W>(remainder, i);
    Pack<W> value;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const int number = static_cast<int16_t>(lower.v[j]);
      value.v[j] = __uint_as_float((static_cast<unsigned>(upper.v[j]) << 16) +
                                   static_cast<unsigned>(number));
    }
    rule.template at<W>(own, i, load_scaled<W>(gradient, i, factor), value);
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

/// A run of fp32 parameters.
template <typename T, typename C, typename R>
struct WholeRun {
  using Rule = R;
  const T* gradient;
  C* copy;
  float* parameter;
  typename Rule::Run own;
  template <int W>
  __device__ void at(const Rule& rule, float factor, int64_t i) const {
    auto value = load<W>(parameter + i);
    rule.template at<W>(own, i, load_scaled<W>(gradient, i, factor), value);
    store<W>(parameter + i, value);
    if (copy) store<W>(copy + i, value);
  }
};

/// The runs of one launch: as many as fit into half of the 32 KB of kernel arguments.
template <typename Run>
struct Launch {
  typename Run::Rule rule;
  const float *gradient_scale, *is_skipped;  // on the device; null: 1 and 0
  int size = 0;                              // number of runs
  unsigned blocks = 0;
  struct Part {
    Run run;
    int64_t count;
    unsigned first_block;
    bool packed;
  };
  static constexpr int kMost = 16000 / static_cast<int>(sizeof(Part));
  Part parts[kMost];
};

/// Small enough to balance the blocks of a run, large enough to amortize finding the run.
constexpr int64_t kElementsOfBlock = 4 * kThreads * kPack;

template <typename Run>
__global__ void __launch_bounds__(kThreads, 4) step_kernel(const __grid_constant__ Launch<Run> x) {
  if (x.is_skipped && *x.is_skipped != 0) return;
  const float factor = x.gradient_scale ? *x.gradient_scale : 1.0F;
  int own = 0, end = x.size;  // own: the last part whose first block is not after this one
  while (end - own > 1) {
    const int middle = (own + end) / 2;
    (x.parts[middle].first_block <= blockIdx.x ? own : end) = middle;
  }
  const auto& part = x.parts[own];
  const int64_t first = int64_t{blockIdx.x - part.first_block} * kElementsOfBlock;
  const int64_t last = min(first + kElementsOfBlock, part.count);
  const int64_t singles = part.packed ? last - last % kPack : first;  // from there to the end
  for (int64_t i = first + threadIdx.x * kPack; i < singles; i += kThreads * kPack) {
    part.run.template at<kPack>(x.rule, factor, i);
  }
  for (int64_t i = singles + threadIdx.x; i < last; i += kThreads) {
    part.run.template at<1>(x.rule, factor, i);
  }
}

/// run_of(run) makes the kernel's view of a run; all runs are of one kind.
template <typename Rule, typename RunOf>
void launch(Device& device, const StepInput& step, std::span<const ParameterRun> runs,
            const Rule& rule, const RunOf& run_of) {
  using Run = decltype(run_of(runs.front()));
  static_assert(std::is_trivially_copyable_v<Launch<Run>> && sizeof(Launch<Run>) <= 32764);
  Launch<Run> next{.rule = rule,
                   .gradient_scale = step.gradient_scale,
                   .is_skipped = step.is_skipped,
                   .parts = {}};
  const auto start = [&] {
    if (next.blocks == 0) return;
    step_kernel<Run><<<next.blocks, kThreads, 0, device.stream()>>>(next);
    check_launch("optimizer's step");
    next.size = 0;
    next.blocks = 0;
  };
  for (const ParameterRun& run : runs) {
    if (run.count == 0) continue;
    if (next.size == next.kMost) start();
    const bool packed = is_packed({run.gradient.data, run.copy.data, run.parameter, run.remainder,
                                   run.states[0].data, run.states[1].data, run.states[2].data},
                                  {});
    next.parts[next.size++] = {run_of(run), run.count, next.blocks, packed};
    next.blocks += static_cast<unsigned>(ceil_div(run.count, kElementsOfBlock));
  }
  start();
}

bool are_alike(const ParameterRun& a, const ParameterRun& b) {
  return a.gradient.type == b.gradient.type && a.copy.type == b.copy.type &&
         (a.remainder == nullptr) == (b.remainder == nullptr);
}

/// own_of(run) makes the rule's Run.
template <typename Rule, typename OwnOf>
void take_step(Device& device, const StepInput& step, const Rule& rule, const OwnOf& own_of) {
  for (std::span<const ParameterRun> rest = step.runs; !rest.empty();) {
    const ParameterRun& first = rest.front();
    const auto other = std::ranges::find_if_not(
        rest, [&](const ParameterRun& run) { return are_alike(first, run); });
    const auto runs = rest.first(static_cast<size_t>(other - rest.begin()));
    if (first.remainder != nullptr) {
      with_type(first.gradient.type, [&]<typename T>(T*) {
        launch(device, step, runs, rule, [&](const ParameterRun& run) {
          return SplitRun<T, Rule>{elements<T>(run.gradient), run.copy.data, run.remainder,
                                   own_of(run)};
        });
      });
    } else {
      with_types(first.gradient.type, first.copy.type, [&]<typename T, typename C>(T*, C*) {
        launch(device, step, runs, rule, [&](const ParameterRun& run) {
          return WholeRun<T, C, Rule>{elements<T>(run.gradient), elements<C>(run.copy),
                                      run.parameter, own_of(run)};
        });
      });
    }
    rest = rest.subspan(runs.size());
  }
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
  const double first_correction = correction(x.beta1, x.number);
  take_step(device, x.step,
            Adam{.beta1 = single(x.beta1),
                 .rest1 = single(1 - x.beta1),
                 .beta2 = single(x.beta2),
                 .rest2 = single(1 - x.beta2),
                 .root = single(1 / std::sqrt(correction(x.beta2, x.number))),
                 .epsilon = single(x.epsilon)},
            [&](const ParameterRun& run) {
              const double rate = run.learning_rate, decay = run.weight_decay;
              return Adam::Run{.first_moment = run.states[0],
                               .second_moment = run.states[1],
                               .rate = single(rate / first_correction),
                               .lost = x.decoupled ? single(rate * decay) : 0.0F,
                               .decay = x.decoupled ? 0.0F : single(decay)};
            });
}

void run(Device& device, const SgdStep& x) {
  take_step(device, x.step, Sgd{.momentum = single(x.momentum), .is_first = x.number <= 1},
            [&](const ParameterRun& run) {
              return Sgd::Run{.momentum_buffer = elements<float>(run.states[0]),
                              .rate = single(run.learning_rate),
                              .decay = single(run.weight_decay)};
            });
}

void run(Device& device, const AdemamixStep& x) {
  take_step(device, x.step,
            Ademamix{.beta1 = single(x.beta1),
                     .rest1 = single(1 - x.beta1),
                     .beta2 = single(x.beta2),
                     .rest2 = single(1 - x.beta2),
                     .beta3 = single(x.beta3),
                     .rest3 = single(1 - x.beta3),
                     .correction = single(1 / correction(x.beta1, x.number)),
                     .root = single(1 / std::sqrt(correction(x.beta2, x.number))),
                     .epsilon = single(x.epsilon),
                     .alpha = single(x.alpha)},
            [&](const ParameterRun& run) {
              return Ademamix::Run{.fast_moment = elements<float>(run.states[0]),
                                   .slow_moment = elements<float>(run.states[1]),
                                   .second_moment = elements<float>(run.states[2]),
                                   .rate = single(run.learning_rate),
                                   .decay = single(run.weight_decay)};
            });
}

}  // namespace ferry::kernels::cuda
