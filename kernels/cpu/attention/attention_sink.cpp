#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// Rows of log_sum, [sequences, heads, queries].
template <typename X>
int64_t head_of(const X& x, int64_t row) {
  return row / x.shape.queries % x.shape.heads;
}
template <typename X>
int64_t output_start(const X& x, int64_t row) {
  const int64_t sequence = row / x.shape.queries / x.shape.heads;
  return head_start(x.shape, x.output_strides, sequence, head_of(x, row)) +
         row % x.shape.queries * x.output_strides.position;
}

}  // namespace

void CpuKernels::run(const AttentionSink& x) {
  const auto& shape = x.shape;
  team_.each(shape.sequences * shape.heads * shape.queries, shape.value_dim, [&](int64_t row) {
    const float score = load(x.score, head_of(x, row), 1)[0], before = x.log_sum[row];
    const float greatest = before > score ? before : score;
    const float sum = greatest + log(exp(all(before - greatest)) + exp(all(score - greatest)))[0];
    const float factor = exp(all(before - sum))[0];
    const int64_t at = output_start(x, row);
    vectors(at, at + shape.value_dim,
            [&](int64_t i, auto n) { store(x.output, i, factor * load(x.output, i, n), n); });
    x.log_sum[row] = sum;
  });
}

void CpuKernels::run(const AttentionSinkGradient& x) {
  const auto& shape = x.shape;
  const int64_t rows = shape.sequences * shape.heads * shape.queries;
  float* parts = workspace_.floats(rows);
  team_.each(rows, shape.value_dim, [&](int64_t row) {
    const int64_t at = output_start(x, row);
    Float product{};
    vectors(at, at + shape.value_dim,
            [&](int64_t i, auto n) { product += load(x.output, i, n) * load(x.doutput, i, n); });
    const float score = load(x.score, head_of(x, row), 1)[0];
    parts[row] = -exp(all(score - x.log_sum[row]))[0] * sum_of(product);
  });
  for (int64_t head = 0; head < shape.heads; ++head) {
    double sum = 0;
    for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      const float* part = parts + (sequence * shape.heads + head) * shape.queries;
      for (int64_t query = 0; query < shape.queries; ++query) {
        sum += static_cast<double>(part[query]);
      }
    }
    const float before = x.dscore.accumulate ? load(x.dscore.array, head, 1)[0] : 0;
    store(x.dscore.array, head, all(before + static_cast<float>(sum)), 1);
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
