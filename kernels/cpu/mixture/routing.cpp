#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

constexpr float kTiny = 1e-20F;  // added to sums of sigmoids to keep them nonzero

/// Returns the logarithm of the sum of exponentials.
float softmax(const float* x, int64_t count, float* y) {
  float greatest = -__builtin_inff();
  for (int64_t i = 0; i < count; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  float sum = 0;
  vectors(0, count, [&](int64_t i, auto n) { store(y + i, exp(load(x + i, n) - greatest), n); });
  for (int64_t i = 0; i < count; ++i) sum += y[i];
  for (int64_t i = 0; i < count; ++i) y[i] /= sum;
  return greatest + log(all(sum))[0];
}

void sigmoids(const float* x, int64_t count, float* y) {
  vectors(0, count, [&](int64_t i, auto n) { store(y + i, sigmoid(load(x + i, n)), n); });
}

float sum_of(const float* x, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

/// Returns the index of the largest element and sets it to minus infinity, so that the next call
/// finds the next one.
int64_t take_largest(float* x, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (x[i] > x[best]) best = i;
  }
  x[best] = -__builtin_inff();
  return best;
}

/// Keeps the experts of the groups whose best experts have the largest sums and sets the others to
/// minus infinity. `scratch`: experts + groups.
void keep_groups(const RouterShape& shape, float* choice, float* scratch) {
  const int64_t size = shape.experts / shape.groups;
  const int64_t best_of_group = shape.chosen / shape.groups_chosen;
  float *copy = scratch, *sums = scratch + shape.experts;
  for (int64_t i = 0; i < shape.experts; ++i) copy[i] = choice[i];
  for (int64_t group = 0; group < shape.groups; ++group) {
    sums[group] = 0;
    for (int64_t j = 0; j < best_of_group; ++j) {
      const float* experts = choice + group * size;
      sums[group] += experts[take_largest(copy + group * size, size)];
    }
  }
  for (int64_t i = 0; i < shape.experts; ++i) copy[i] = -__builtin_inff();
  for (int64_t j = 0; j < shape.groups_chosen; ++j) {
    const int64_t group = take_largest(sums, shape.groups);
    for (int64_t i = group * size; i < (group + 1) * size; ++i) copy[i] = choice[i];
  }
  for (int64_t i = 0; i < shape.experts; ++i) choice[i] = copy[i];
}

/// Memory for one token: scores, choice, and scratch for keep_groups.
int64_t memory_of_token(const RouterShape& shape) { return 3 * shape.experts + shape.groups; }

/// One token's input to the load-balancing loss. `scores`: sigmoids of the logits, with a sigmoid
/// router; `scratch`: experts.
void score_for_balance(const RouterForward& x, int64_t token, const float* scores, float* scratch) {
  const int64_t count = x.shape.experts;
  float* to = x.scores + token * count;
  if (x.shape.score == RouterScore::softmax) {
    softmax(x.logits + token * count, count, to);
  } else {
    const float sum = sum_of(scores, count) + kTiny;
    for (int64_t i = 0; i < count; ++i) to[i] = scores[i] / sum;
  }
  if (!x.balance_experts) return;
  for (int64_t i = 0; i < count; ++i) scratch[i] = to[i];
  int32_t* experts = x.balance_experts + token * x.shape.chosen;
  for (int64_t j = 0; j < x.shape.chosen; ++j) {
    experts[j] = static_cast<int32_t>(take_largest(scratch, count));
  }
}

void route(const RouterForward& x, int64_t token, float* memory) {
  const auto& shape = x.shape;
  const float* logits = x.logits + token * shape.experts;
  float *scores = memory, *choice = memory + shape.experts;
  const bool is_softmax = shape.score == RouterScore::softmax;
  if (!is_softmax) {
    sigmoids(logits, shape.experts, scores);
  } else if (shape.softmax_first) {
    softmax(logits, shape.experts, scores);
  } else {
    for (int64_t i = 0; i < shape.experts; ++i) scores[i] = logits[i];
  }
  for (int64_t i = 0; i < shape.experts; ++i) {
    choice[i] = scores[i] + (x.expert_bias ? x.expert_bias[i] : 0.0F);
  }
  if (shape.groups > 0) keep_groups(shape, choice, choice + shape.experts);

  int32_t* experts = x.experts + token * shape.chosen;
  float* weights = x.weights + token * shape.chosen;
  for (int64_t j = 0; j < shape.chosen; ++j) {
    experts[j] = static_cast<int32_t>(take_largest(choice, shape.experts));
    weights[j] = scores[experts[j]];
  }
  if (is_softmax && !shape.softmax_first) softmax(weights, shape.chosen, weights);
  if (!is_softmax && shape.chosen > 1) {
    const float sum = sum_of(weights, shape.chosen) + kTiny;
    for (int64_t j = 0; j < shape.chosen; ++j) weights[j] /= sum;
  }
  if (shape.scale != 0) {
    for (int64_t j = 0; j < shape.chosen; ++j) weights[j] *= static_cast<float>(shape.scale);
  }
  if (x.scores) score_for_balance(x, token, scores, choice);
}

/// Adds to dlogits the gradient of the softmax over all experts with result `scores`, whose
/// gradient is gradient(expert).
template <typename F>
void add_softmax_gradient(const float* scores, int64_t count, const F& gradient, float* dlogits) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += scores[i] * gradient(i);
  for (int64_t i = 0; i < count; ++i) dlogits[i] += scores[i] * (gradient(i) - sum);
}

/// The gradient from one token's weights. `memory`: experts, with softmax or sigmoid of all logits.
void add_weight_gradient(const RouterBackward& x, int64_t token, const float* scores,
                         float* dlogits) {
  const auto& shape = x.shape;
  const float scale = shape.scale != 0 ? static_cast<float>(shape.scale) : 1.0F;
  const int32_t* experts = x.experts + token * shape.chosen;
  const float* weights = x.weights + token * shape.chosen;
  const float* dweights = x.dweights + token * shape.chosen;
  float sum = 0;  // sum of weight · gradient, without the scale
  for (int64_t j = 0; j < shape.chosen; ++j) sum += weights[j] * dweights[j];
  if (shape.score == RouterScore::sigmoid) {
    float divisor = 1;
    if (shape.chosen > 1) {
      divisor = kTiny;
      for (int64_t j = 0; j < shape.chosen; ++j) divisor += scores[experts[j]];
    } else {
      sum = 0;
    }
    for (int64_t j = 0; j < shape.chosen; ++j) {
      const float s = scores[experts[j]];
      dlogits[experts[j]] += (scale * dweights[j] - sum) / divisor * s * (1 - s);
    }
    return;
  }
  if (!shape.softmax_first) {
    for (int64_t j = 0; j < shape.chosen; ++j) {
      dlogits[experts[j]] += weights[j] / scale * (scale * dweights[j] - sum);
    }
    return;
  }
  // Softmax before the choice: experts that were not chosen contribute only through the sum.
  for (int64_t i = 0; i < shape.experts; ++i) dlogits[i] -= scores[i] * sum;
  for (int64_t j = 0; j < shape.chosen; ++j) {
    dlogits[experts[j]] += scores[experts[j]] * scale * dweights[j];
  }
}

void add_score_gradient(const RouterBackward& x, int64_t token, const float* sigmoid_scores,
                        float* dlogits) {
  const int64_t count = x.shape.experts;
  const float* gradient = x.expert_gradient + token % x.sequences * count;
  const float* scores = x.scores + token * count;
  if (x.shape.score == RouterScore::softmax) {
    return add_softmax_gradient(
        scores, count, [&](int64_t i) { return gradient[i]; }, dlogits);
  }
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += scores[i] * gradient[i];
  const float divisor = sum_of(sigmoid_scores, count) + kTiny;
  for (int64_t i = 0; i < count; ++i) {
    const float s = sigmoid_scores[i];
    dlogits[i] += (gradient[i] - sum) / divisor * s * (1 - s);
  }
}

}  // namespace

void CpuKernels::run(const RouterForward& x) {
  const int64_t each = memory_of_token(x.shape);
  float* memory = workspace_.floats(each * x.shape.tokens);
  team_.each(x.shape.tokens, 16 * x.shape.experts,
             [&](int64_t token) { route(x, token, memory + token * each); });
}

void CpuKernels::run(const RouterBackward& x) {
  const int64_t experts = x.shape.experts;
  float* memory = workspace_.floats(experts * x.shape.tokens);
  team_.each(x.shape.tokens, 16 * experts, [&](int64_t token) {
    float* scores = memory + token * experts;
    float* dlogits = x.dlogits + token * experts;
    const float* logits = x.logits + token * experts;
    for (int64_t i = 0; i < experts; ++i) dlogits[i] = 0;
    if (x.shape.score == RouterScore::sigmoid) {
      sigmoids(logits, experts, scores);
    } else if (x.shape.softmax_first) {
      softmax(logits, experts, scores);
    }
    add_weight_gradient(x, token, scores, dlogits);
    if (x.expert_gradient) add_score_gradient(x, token, scores, dlogits);
    if (x.z_factor != 0) {
      const float z = 2 * static_cast<float>(x.z_factor) * softmax(logits, experts, scores);
      for (int64_t i = 0; i < experts; ++i) dlogits[i] += z * scores[i];
    }
  });
}

void CpuKernels::run(const ZLoss& x) {
  double* parts = workspace_.doubles(x.tokens * (1 + x.experts));
  auto* memory = reinterpret_cast<float*>(parts + x.tokens);
  team_.each(x.tokens, 8 * x.experts, [&](int64_t token) {
    const int64_t first = token * x.experts;
    const double z = static_cast<double>(softmax(x.logits + first, x.experts, memory + first));
    parts[token] = z * z;
  });
  double sum = 0;
  for (int64_t token = 0; token < x.tokens; ++token) sum += parts[token];
  *x.loss += x.factor * sum;
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
