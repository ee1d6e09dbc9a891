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

/// A thread for each token, a row of blocks for each rank. Counts are integers, so the order of
/// additions does not matter.
__global__ void find_ranks(ChosenRanks x) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto rank = static_cast<int64_t>(blockIdx.y);
  unsigned count = 0;
  if (token < x.tokens) {
    const int32_t* const taken = x.taken + token * x.chosen;
    for (int64_t j = 0; j < x.chosen; ++j) {
      if (taken[j] / x.experts_of_rank == rank / x.parts) ++count;
    }
    x.rank_of[token * x.ranks + rank] = count > 0 ? static_cast<int32_t>(rank) : -1;
  }
  count = __reduce_add_sync(~0U, count);
  if (threadIdx.x % 32 == 0 && count > 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(x.choices + rank), count);
  }
}

/// Sort keys of choices: those that are left out come last.
struct ExpertKeys {
  const int32_t* taken;
  int64_t first, experts;
  int32_t *keys, *numbers;
  __device__ void operator()(int64_t choice) const {
    const int64_t expert = taken[choice] - first;
    keys[choice] = static_cast<int32_t>(expert >= 0 && expert < experts ? expert : experts);
    numbers[choice] = static_cast<int32_t>(choice);
  }
};

/// Both directions of the permutation, from the sorted numbers.
struct Directions {
  const int32_t *keys, *sorted;
  int64_t experts;
  int32_t *choice_of, *row_of;
  __device__ void operator()(int64_t row) const {
    const bool is_left_out = keys[row] == experts;
    if (!is_left_out) choice_of[row] = sorted[row];
    row_of[sorted[row]] = is_left_out ? -1 : static_cast<int32_t>(row);
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

void run(Device& device, const ChosenRanks& x) {
  const auto bytes = static_cast<size_t>(x.ranks) * sizeof(int64_t);
  check(cudaMemsetAsync(x.choices, 0, bytes, device.stream()), "clearing");
  if (x.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(x.tokens, kThreads)),
                  static_cast<unsigned>(x.ranks));
  find_ranks<<<grid, kThreads, 0, device.stream()>>>(x);
  check_launch("ranks of tokens");
}

void run(Device& device, const ExpertOrder& x) {
  const int64_t choices = x.tokens * x.chosen;
  const Sorted sorted =
      sort_pairs(device, choices, x.experts + 1, [&](int32_t* keys, int32_t* numbers) {
        each(device, choices, ExpertKeys{x.taken, x.first, x.experts, keys, numbers}, "experts");
      });
  each(device, choices, Directions{sorted.keys, sorted.numbers, x.experts, x.choice_of, x.row_of},
       "order of experts");
  each(device, x.experts + 1, Offsets{sorted.keys, choices, x.offsets}, "offsets of experts");
}

void run(Device& device, const ExpertBiasStep& x) {
  if (x.experts == 0) return;
  step_bias<<<1, kThreads, 0, device.stream()>>>(x);
  check_launch("experts' biases");
}

}  // namespace ferry::kernels::cuda
