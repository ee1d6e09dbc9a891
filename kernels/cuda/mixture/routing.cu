// Routing of tokens to experts, one warp per token. In functions on `count` numbers, lane i has
// elements i, i + 32, ...
#include "kernels/cuda/activation_functions.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr float kTiny = 1e-20F;  // added to sums of sigmoids to keep them nonzero

__device__ int lane_number() { return threadIdx.x % 32; }

template <typename F>
__device__ void each_lane(int64_t count, const F& f) {
  for (int64_t i = lane_number(); i < count; i += 32) f(i);
  __syncwarp();
}

template <typename F>
__device__ float warp_sum_of(int64_t count, const F& f) {
  float sum = 0;
  for (int64_t i = lane_number(); i < count; i += 32) sum += f(i);
  return warp_sum(sum);
}

/// y = softmax(x); returns the logarithm of the sum of exponentials. y may be x.
__device__ float softmax(const float* x, int64_t count, float* y) {
  float greatest = -INFINITY;
  for (int64_t i = lane_number(); i < count; i += 32) greatest = fmaxf(greatest, x[i]);
  greatest = warp_max(greatest);
  each_lane(count, [&](int64_t i) { y[i] = expf(x[i] - greatest); });
  const float sum = warp_sum_of(count, [&](int64_t i) { return y[i]; });
  each_lane(count, [&](int64_t i) { y[i] /= sum; });
  return greatest + logf(sum);
}

__device__ void sigmoids(const float* x, int64_t count, float* y) {
  each_lane(count, [&](int64_t i) { y[i] = sigmoid(x[i]); });
}

/// Returns the index of the largest element, the lowest among equal ones, and sets it to minus
/// infinity, so that the next call finds the next one.
__device__ int take_largest(float* x, int64_t count) {
  float best = -INFINITY;
  int number = 0x7fffffff;
  for (int64_t i = lane_number(); i < count; i += 32) {
    if (number == 0x7fffffff || x[i] > best) {
      best = x[i];
      number = static_cast<int>(i);
    }
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, best, lanes);
    const int other_number = __shfl_xor_sync(0xffffffffU, number, lanes);
    const bool is_better = other > best || (other == best && other_number < number);
    if (other_number != 0x7fffffff && (number == 0x7fffffff || is_better)) {
      best = other;
      number = other_number;
    }
  }
  if (lane_number() == 0) x[number] = -INFINITY;
  __syncwarp();
  return number;
}

/// Keeps the experts of the groups whose best experts have the largest sums and sets the others to
/// minus infinity. `scratch`: experts + groups.
__device__ void keep_groups(const RouterShape& shape, float* choice, float* scratch) {
  const int64_t size = shape.experts / shape.groups;
  const int64_t best_of_group = shape.chosen / shape.groups_chosen;
  float *copy = scratch, *sums = scratch + shape.experts;
  each_lane(shape.experts, [&](int64_t i) { copy[i] = choice[i]; });
  for (int64_t group = 0; group < shape.groups; ++group) {
    float sum = 0;
    for (int64_t j = 0; j < best_of_group; ++j) {
      sum += choice[group * size + take_largest(copy + group * size, size)];
    }
    if (lane_number() == 0) sums[group] = sum;
  }
  __syncwarp();
  each_lane(shape.experts, [&](int64_t i) { copy[i] = -INFINITY; });
  for (int64_t j = 0; j < shape.groups_chosen; ++j) {
    const int64_t group = take_largest(sums, shape.groups);
    each_lane(size, [&](int64_t i) { copy[group * size + i] = choice[group * size + i]; });
  }
  each_lane(shape.experts, [&](int64_t i) { choice[i] = copy[i]; });
}

int64_t numbers_of_token(const RouterShape& shape) { return 3 * shape.experts + shape.groups; }

/// One token's input to the load-balancing loss. `scores`: sigmoids of the logits, with a sigmoid
/// router; `scratch`: experts.
__device__ void score_for_balance(const RouterForward& x, int64_t token, const float* scores,
                                  float* scratch) {
  const int64_t count = x.shape.experts;
  float* to = x.scores + token * count;
  if (x.shape.score == RouterScore::softmax) {
    softmax(x.logits + token * count, count, to);
  } else {
    const float sum = warp_sum_of(count, [&](int64_t i) { return scores[i]; }) + kTiny;
    each_lane(count, [&](int64_t i) { to[i] = scores[i] / sum; });
  }
  if (!x.balance_experts) return;
  each_lane(count, [&](int64_t i) { scratch[i] = to[i]; });
  for (int64_t j = 0; j < x.shape.chosen; ++j) {
    const int expert = take_largest(scratch, count);
    if (lane_number() == 0) x.balance_experts[token * x.shape.chosen + j] = expert;
  }
}

__global__ void route(RouterForward x, int64_t numbers) {
  extern __shared__ float shared[];
  const int64_t token = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  if (token >= x.shape.tokens) return;
  const auto& shape = x.shape;
  const float* const logits = x.logits + token * shape.experts;
  float* const scores = shared + threadIdx.x / 32 * numbers;
  float* const choice = scores + shape.experts;
  const bool is_softmax = shape.score == RouterScore::softmax;
  if (!is_softmax) {
    sigmoids(logits, shape.experts, scores);
  } else if (shape.softmax_first) {
    softmax(logits, shape.experts, scores);
  } else {
    each_lane(shape.experts, [&](int64_t i) { scores[i] = logits[i]; });
  }
  each_lane(shape.experts,
            [&](int64_t i) { choice[i] = scores[i] + (x.expert_bias ? x.expert_bias[i] : 0.0F); });
  if (shape.groups > 0) keep_groups(shape, choice, choice + shape.experts);

  float* const weights = x.weights + token * shape.chosen;
  for (int64_t j = 0; j < shape.chosen; ++j) {
    const int expert = take_largest(choice, shape.experts);
    if (lane_number() != 0) continue;
    x.experts[token * shape.chosen + j] = expert;
    weights[j] = scores[expert];
  }
  __syncwarp();
  if (is_softmax && !shape.softmax_first) softmax(weights, shape.chosen, weights);
  if (!is_softmax && shape.chosen > 1) {
    const float sum = warp_sum_of(shape.chosen, [&](int64_t j) { return weights[j]; }) + kTiny;
    each_lane(shape.chosen, [&](int64_t j) { weights[j] /= sum; });
  }
  if (shape.scale != 0) {
    const auto scale = static_cast<float>(shape.scale);
    each_lane(shape.chosen, [&](int64_t j) { weights[j] *= scale; });
  }
  if (x.scores) score_for_balance(x, token, scores, choice);
}

/// The gradient from one token's weights. `scores`: softmax or sigmoid of all logits. A token's
/// experts are distinct, so lanes add to distinct elements.
__device__ void add_weight_gradient(const RouterBackward& x, int64_t token, const float* scores,
                                    float* dlogits) {
  const auto& shape = x.shape;
  const float scale = shape.scale != 0 ? static_cast<float>(shape.scale) : 1.0F;
  const int32_t* const experts = x.experts + token * shape.chosen;
  const float* const weights = x.weights + token * shape.chosen;
  const float* const dweights = x.dweights + token * shape.chosen;
  // The sum of weight · gradient, without the scale.
  float sum = warp_sum_of(shape.chosen, [&](int64_t j) { return weights[j] * dweights[j]; });
  if (shape.score == RouterScore::sigmoid) {
    float divisor = 1;
    if (shape.chosen > 1) {
      divisor = kTiny + warp_sum_of(shape.chosen, [&](int64_t j) { return scores[experts[j]]; });
    } else {
      sum = 0;
    }
    return each_lane(shape.chosen, [&](int64_t j) {
      const float s = scores[experts[j]];
      dlogits[experts[j]] += (scale * dweights[j] - sum) / divisor * s * (1 - s);
    });
  }
  if (!shape.softmax_first) {
    return each_lane(shape.chosen, [&](int64_t j) {
      dlogits[experts[j]] += weights[j] / scale * (scale * dweights[j] - sum);
    });
  }
  // Softmax before the choice: experts that were not chosen contribute only through the sum.
  each_lane(shape.experts, [&](int64_t i) { dlogits[i] -= scores[i] * sum; });
  each_lane(shape.chosen,
            [&](int64_t j) { dlogits[experts[j]] += scores[experts[j]] * scale * dweights[j]; });
}

__device__ void add_score_gradient(const RouterBackward& x, int64_t token,
                                   const float* sigmoid_scores, float* dlogits) {
  const int64_t count = x.shape.experts;
  const float* const gradient = x.expert_gradient + token % x.sequences * count;
  const float* const scores = x.scores + token * count;
  const float sum = warp_sum_of(count, [&](int64_t i) { return scores[i] * gradient[i]; });
  if (x.shape.score == RouterScore::softmax) {
    return each_lane(count, [&](int64_t i) { dlogits[i] += scores[i] * (gradient[i] - sum); });
  }
  const float divisor = warp_sum_of(count, [&](int64_t i) { return sigmoid_scores[i]; }) + kTiny;
  each_lane(count, [&](int64_t i) {
    const float s = sigmoid_scores[i];
    dlogits[i] += (gradient[i] - sum) / divisor * s * (1 - s);
  });
}

__global__ void route_backward(RouterBackward x) {
  extern __shared__ float shared[];
  const int64_t token = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  if (token >= x.shape.tokens) return;
  const int64_t experts = x.shape.experts;
  float* const scores = shared + threadIdx.x / 32 * 2 * experts;
  float* const dlogits = scores + experts;
  const float* const logits = x.logits + token * experts;
  each_lane(experts, [&](int64_t i) { dlogits[i] = 0; });
  if (x.shape.score == RouterScore::sigmoid) {
    sigmoids(logits, experts, scores);
  } else if (x.shape.softmax_first) {
    softmax(logits, experts, scores);
  }
  add_weight_gradient(x, token, scores, dlogits);
  if (x.expert_gradient) add_score_gradient(x, token, scores, dlogits);
  if (x.z_factor != 0) {
    const float z = 2 * static_cast<float>(x.z_factor) * softmax(logits, experts, scores);
    each_lane(experts, [&](int64_t i) { dlogits[i] += z * scores[i]; });
  }
  each_lane(experts, [&](int64_t i) { x.dlogits[token * experts + i] = dlogits[i]; });
}

/// log²(the sum of exponentials) of one token, by one thread.
struct SquaredLogSum {
  const float* logits;
  int64_t experts;
  __device__ double operator()(int64_t token) const {
    const float* const x = logits + token * experts;
    float greatest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < experts; ++i) greatest = fmaxf(greatest, x[i]);
    for (int64_t i = 0; i < experts; ++i) sum += expf(x[i] - greatest);
    const double z = greatest + logf(sum);
    return z * z;
  }
};

/// Queues a kernel with `floats` of shared memory for each of a block's tokens.
template <typename Kernel, typename X, typename... Rest>
void launch_by_token(Device& device, Kernel* kernel, const X& x, int64_t floats,
                     const Rest&... rest) {
  if (x.shape.tokens == 0) return;
  const auto bytes = static_cast<size_t>(kWarps * floats) * sizeof(float);
  if (bytes > 48 << 10) allow_shared_memory(kernel, bytes);
  const auto blocks = static_cast<unsigned>(ceil_div(x.shape.tokens, kWarps));
  kernel<<<blocks, 32 * kWarps, bytes, device.stream()>>>(x, rest...);
  check_launch("router");
}

}  // namespace

void run(Device& device, const RouterForward& x) {
  const int64_t numbers = numbers_of_token(x.shape);
  launch_by_token(device, route, x, numbers, numbers);
}

void run(Device& device, const RouterBackward& x) {
  launch_by_token(device, route_backward, x, 2 * x.shape.experts);
}

void run(Device& device, const ZLoss& x) {
  add_sum(device, x.tokens, x.factor, x.loss, SquaredLogSum{x.logits, x.experts});
}

}  // namespace ferry::kernels::cuda
