#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

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

void CpuKernels::run(const ChosenRanks& x) {
  for (int64_t rank = 0; rank < x.ranks; ++rank) x.choices[rank] = 0;
  for (int64_t token = 0; token < x.tokens; ++token) {
    int32_t* const rank_of = x.rank_of + token * x.ranks;
    for (int64_t rank = 0; rank < x.ranks; ++rank) rank_of[rank] = -1;
    for (int64_t j = 0; j < x.chosen; ++j) {
      const int64_t first = x.taken[token * x.chosen + j] / x.experts_of_rank * x.parts;
      for (int64_t rank = first; rank < first + x.parts; ++rank) {
        rank_of[rank] = static_cast<int32_t>(rank);
        ++x.choices[rank];
      }
    }
  }
}

void CpuKernels::run(const ExpertOrder& x) {
  const int64_t choices = x.tokens * x.chosen;
  for (int64_t i = 0; i <= x.experts; ++i) x.offsets[i] = 0;
  const auto for_each_choice = [&](const auto& use) {
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int64_t expert = x.taken[choice] - x.first;
      if (expert >= 0 && expert < x.experts) use(choice, expert);
    }
  };
  for_each_choice([&](int64_t, int64_t expert) { ++x.offsets[expert + 1]; });
  for (int64_t i = 0; i < x.experts; ++i) x.offsets[i + 1] += x.offsets[i];
  auto* next = reinterpret_cast<int64_t*>(
      workspace_.take(static_cast<size_t>(x.experts + 1) * sizeof(int64_t)));
  for (int64_t i = 0; i < x.experts; ++i) next[i] = x.offsets[i];
  for (int64_t choice = 0; choice < choices; ++choice) x.row_of[choice] = -1;
  for_each_choice([&](int64_t choice, int64_t expert) {
    const int64_t row = next[expert]++;
    x.row_of[choice] = static_cast<int32_t>(row);
    x.choice_of[row] = static_cast<int32_t>(choice);
  });
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

void CpuKernels::run(const GateRows& x) {
  team_.each(x.rows, x.width, [&](int64_t row) {
    const Float gate = all(sigmoid(all(x.logit[row]))[0]);
    const int64_t first = row * x.width;
    vectors(first, first + x.width,
            [&](int64_t i, auto n) { store(x.y, i, gate * load(x.x, i, n), n); });
  });
}

void CpuKernels::run(const GateRowsBackward& x) {
  team_.each(x.rows, x.width, [&](int64_t row) {
    const float gate = sigmoid(all(x.logit[row]))[0];
    const int64_t first = row * x.width;
    Float product{};
    vectors(first, first + x.width, [&](int64_t i, auto n) {
      const Float dy = load(x.dy, i, n);
      product += dy * load(x.x, i, n);
      store(x.dx, i, gate * dy, n);
    });
    x.dlogit[row] = sum_of(product) * gate * (1 - gate);
  });
}

// The library compiles code for each shape, but groups have any number of rows. To limit the number
// of shapes, a group's rows are processed in multiples of kRows, and the rest is padded with zeros.
namespace {

constexpr int64_t kRows = 64, kSmallRows = 16;

/// Copies the remaining rows to `to`, padded with zeros.
ConstArray with_zeros(const ConstArray& from, int64_t rows, int64_t padded_rows, int64_t width,
                      std::byte* to) {
  const auto bytes = static_cast<size_t>(rows * width * size_bytes(from.type));
  const auto padded_bytes = static_cast<size_t>(padded_rows * width * size_bytes(from.type));
  std::memcpy(to, from.data, bytes);
  std::memset(to + bytes, 0, padded_bytes - bytes);
  return {to, from.type};
}

int64_t padded(int64_t rows) { return (rows + kSmallRows - 1) / kSmallRows * kSmallRows; }

}  // namespace

void CpuKernels::run(const GroupedMatmul& x) {
  for (size_t group = 0; group < x.b.size(); ++group) {
    const int64_t begin = x.offsets[group], rows = x.offsets[group + 1] - begin;
    const int64_t whole = rows / kRows * kRows, rest = rows - whole;
    Product p{.m = whole,
              .n = x.n,
              .k = x.k,
              .a = x.a.from(begin * x.k),
              .b = x.b[group],
              .bias = {},
              .c = x.c.from(begin * x.n),
              .a_stride = x.k,
              .b_stride = x.b_transposed ? x.k : x.n,
              .c_stride = x.n,
              .a_transposed = false,
              .b_transposed = x.b_transposed,
              .accumulate = false};
    run(p);
    if (rest == 0) continue;
    const auto a_bytes = static_cast<size_t>(kRows * x.k * size_bytes(x.a.type));
    std::byte* memory =
        rest_.take(a_bytes + static_cast<size_t>(kRows * x.n * size_bytes(x.c.type)));
    const auto c = x.c.from((begin + whole) * x.n);
    p.m = padded(rest);
    p.a = with_zeros(x.a.from((begin + whole) * x.k), rest, p.m, x.k, memory);
    p.c = {memory + a_bytes, x.c.type};
    run(p);
    std::memcpy(c.data, p.c.data, static_cast<size_t>(rest * x.n * size_bytes(c.type)));
  }
}

void CpuKernels::run(const GroupedMatmulGradient& x) {
  for (size_t group = 0; group < x.c.size(); ++group) {
    const int64_t begin = x.offsets[group], rows = x.offsets[group + 1] - begin;
    const int64_t whole = rows / kRows * kRows, rest = rows - whole;
    Product p{.m = x.m,
              .n = x.n,
              .k = whole,
              .a = x.a.from(begin * x.m),
              .b = x.b.from(begin * x.n),
              .bias = {},
              .c = x.c[group],
              .a_stride = x.m,
              .b_stride = x.n,
              .c_stride = x.n,
              .a_transposed = true,
              .b_transposed = false,
              .accumulate = x.accumulate};
    run(p);
    if (rest == 0) continue;
    p.accumulate = true;
    const auto a_bytes = static_cast<size_t>(kRows * x.m * size_bytes(x.a.type));
    std::byte* memory =
        rest_.take(a_bytes + static_cast<size_t>(kRows * x.n * size_bytes(x.b.type)));
    p.k = padded(rest);
    p.a = with_zeros(x.a.from((begin + whole) * x.m), rest, p.k, x.m, memory);
    p.b = with_zeros(x.b.from((begin + whole) * x.n), rest, p.k, x.n, memory + a_bytes);
    run(p);
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
