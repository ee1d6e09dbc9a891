#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const ExpertCounts& x) {
  if (!x.accumulate) {
    for (int64_t i = 0; i < x.sequences * x.experts; ++i) x.counts[i] = 0;
  }
  for (int64_t token = 0; token < x.tokens; ++token) {
    float* counts = x.counts + token % x.sequences * x.experts;
    for (int64_t j = 0; j < x.chosen; ++j) counts[x.taken[token * x.chosen + j]] += 1;
  }
}

void CpuKernels::run(const BalanceLoss& x) {
  if (x.loss) {
    double* parts = workspace_.doubles(x.tokens);
    team_.each(x.tokens, x.experts, [&](int64_t token) {
      const float* counts = x.counts + token % x.sequences * x.experts;
      const float* scores = x.scores + token * x.experts;
      parts[token] = 0;
      for (int64_t i = 0; i < x.experts; ++i) {
        parts[token] += static_cast<double>(counts[i]) * static_cast<double>(scores[i]);
      }
    });
    double sum = 0;
    for (int64_t token = 0; token < x.tokens; ++token) sum += parts[token];
    *x.loss += x.factor * sum;
  }
  if (!x.gradient) return;
  const auto factor = static_cast<float>(x.gradient_factor);
  for (int64_t i = 0; i < x.sequences * x.experts; ++i) x.gradient[i] = factor * x.counts[i];
}

void CpuKernels::run(const ExpertOrder& x) {
  const int64_t choices = x.tokens * x.chosen, places = x.experts * x.parts;
  const auto place_of = [&](int64_t choice, int64_t part) {
    const int64_t expert = x.taken[choice], rank = expert / x.experts_of_rank;
    return (rank * x.parts + part) * x.experts_of_rank + expert % x.experts_of_rank;
  };
  for (int64_t i = 0; i <= places; ++i) x.offsets[i] = 0;
  for (int64_t choice = 0; choice < choices; ++choice) {
    for (int64_t part = 0; part < x.parts; ++part) ++x.offsets[place_of(choice, part) + 1];
  }
  for (int64_t i = 0; i < places; ++i) x.offsets[i + 1] += x.offsets[i];
  auto* next = reinterpret_cast<int64_t*>(
      workspace_.take(static_cast<size_t>(places + 1) * sizeof(int64_t)));
  for (int64_t i = 0; i < places; ++i) next[i] = x.offsets[i];
  for (int64_t choice = 0; choice < choices; ++choice) {
    for (int64_t part = 0; part < x.parts; ++part) {
      const int64_t row = next[place_of(choice, part)]++, number = choice * x.parts + part;
      x.row_of[number] = static_cast<int32_t>(row);
      x.choice_of[row] = static_cast<int32_t>(number);
    }
  }
}

void CpuKernels::run(const ExpertBiasStep& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.experts; ++i) sum += static_cast<double>(x.tokens[i]);
  const double mean = sum / static_cast<double>(x.experts);
  for (int64_t i = 0; i < x.experts; ++i) {
    const double error = mean - static_cast<double>(x.tokens[i]);
    x.bias[i] += static_cast<float>(error > 0 ? x.rate : error < 0 ? -x.rate : 0);
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
