// Sorts tokens by expert and counts them.
#include <algorithm>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/sorted.cuh"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

/// Increments the choice's count. Counts are integers below 2^24, so the order of additions does
/// not matter.
struct CountChoices {
  const int32_t* taken;
  int64_t chosen, experts, sequences;
  float* counts;
  __device__ void operator()(int64_t choice) const {
    const int64_t token = choice / chosen;
    atomicAdd(counts + token % sequences * experts + taken[choice], 1.0F);
  }
};

/// A token's part of the loss, without the factor.
struct TokenBalance {
  const float *scores, *counts;
  int64_t experts, sequences;
  __device__ double operator()(int64_t token) const {
    const float* const own_counts = counts + token % sequences * experts;
    const float* const own_scores = scores + token * experts;
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) {
      sum += static_cast<double>(own_counts[i]) * static_cast<double>(own_scores[i]);
    }
    return sum;
  }
};

struct ScaleNumbers {
  const float* x;
  float factor;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = factor * x[i]; }
};

/// Destinations of the parts of choices: places are the ranks' experts in order.
struct Places {
  const int32_t* taken;
  int64_t parts, experts_of_rank;
  int32_t *keys, *numbers;
  __device__ void operator()(int64_t number) const {
    const int64_t expert = taken[number / parts], part = number % parts;
    const int64_t rank = expert / experts_of_rank;
    keys[number] =
        static_cast<int32_t>((rank * parts + part) * experts_of_rank + expert % experts_of_rank);
    numbers[number] = static_cast<int32_t>(number);
  }
};

/// Both directions of the permutation, from the sorted numbers.
struct Directions {
  const int32_t* sorted;
  int32_t *choice_of, *row_of;
  __device__ void operator()(int64_t row) const {
    choice_of[row] = sorted[row];
    row_of[sorted[row]] = static_cast<int32_t>(row);
  }
};

/// offsets[place] = the index of the first sorted key >= `place`.
struct Offsets {
  const int32_t* keys;
  int64_t count;
  int64_t* offsets;
  __device__ void operator()(int64_t place) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    offsets[place] = low;
  }
};

__global__ void step_bias(ExpertBiasStep x) {
  __shared__ double scratch[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < x.experts; i += blockDim.x) sum += x.tokens[i];
  const double mean = block_sum(sum, scratch) / static_cast<double>(x.experts);
  for (int64_t i = threadIdx.x; i < x.experts; i += blockDim.x) {
    const double error = mean - x.tokens[i];
    x.bias[i] += static_cast<float>(error > 0 ? x.rate : error < 0 ? -x.rate : 0);
  }
}

}  // namespace

void run(Device& device, const ExpertCounts& x) {
  if (!x.accumulate) {
    const auto bytes = static_cast<size_t>(x.sequences * x.experts) * sizeof(float);
    check(cudaMemsetAsync(x.counts, 0, bytes, device.stream()), "clearing");
  }
  each(device, x.tokens * x.chosen,
       CountChoices{x.taken, x.chosen, x.experts, x.sequences, x.counts}, "counts of experts");
}

void run(Device& device, const BalanceLoss& x) {
  if (x.loss) {
    add_sum(device, x.tokens, x.factor, x.loss,
            TokenBalance{x.scores, x.counts, x.experts, x.sequences});
  }
  if (!x.gradient) return;
  each(device, x.sequences * x.experts,
       ScaleNumbers{x.counts, static_cast<float>(x.gradient_factor), x.gradient},
       "gradient of the load-balancing loss");
}

void run(Device& device, const ExpertOrder& x) {
  const int64_t places = x.experts * x.parts, rows = x.tokens * x.chosen * x.parts;
  const Sorted sorted = sort_pairs(device, rows, places, [&](int32_t* keys, int32_t* numbers) {
    each(device, rows, Places{x.taken, x.parts, x.experts_of_rank, keys, numbers}, "places");
  });
  each(device, rows, Directions{sorted.numbers, x.choice_of, x.row_of}, "order of experts");
  each(device, places + 1, Offsets{sorted.keys, rows, x.offsets}, "offsets of experts");
}

void run(Device& device, const ExpertBiasStep& x) {
  if (x.experts == 0) return;
  step_bias<<<1, kThreads, 0, device.stream()>>>(x);
  check_launch("experts' biases");
}

}  // namespace ferry::kernels::cuda
