#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const CrossEntropy& x) {
  float* const memory = workspace_.floats(3 * x.rows);
  float *maximum = memory, *sum = memory + x.rows, *target = memory + 2 * x.rows;
  run(LogitMaximum{.rows = x.rows, .columns = x.columns, .logits = x.logits, .maximum = maximum});
  run(LogitSums{.rows = x.rows,
                .columns = x.columns,
                .first_column = 0,
                .logits = x.logits,
                .targets = x.targets,
                .maximum = maximum,
                .sum = sum,
                .target = target});
  run(CrossEntropyGradient{.rows = x.rows,
                           .columns = x.columns,
                           .first_column = 0,
                           .logits = x.logits,
                           .targets = x.targets,
                           .maximum = maximum,
                           .sum = sum,
                           .target = target,
                           .weight = x.weight,
                           .loss = x.loss,
                           .dlogits = x.dlogits});
}

void CpuKernels::run(const LogitMaximum& x) {
  with_type(x.logits.type, [&]<typename T>(T*) {
    team_.each(x.rows, x.columns, [&](int64_t row) {
      const auto* logits = static_cast<const T*>(x.logits.data) + row * x.columns;
      Float greatest = all(-__builtin_inff());
      int64_t i = 0;
      for (; i + kLanes <= x.columns; i += kLanes) {
        const Float value = load(logits + i);
        greatest = greatest < value ? value : greatest;
      }
      float result = greatest_of(greatest);
      for (; i < x.columns; ++i) {
        const float value = load(logits + i, 1)[0];
        result = result < value ? value : result;
      }
      x.maximum[row] = result;
    });
  });
}

void CpuKernels::run(const LogitSums& x) {
  constexpr int64_t kBlock = 4096;  // columns that are summed in fp32
  with_type(x.logits.type, [&]<typename T>(T*) {
    team_.each(x.rows, x.columns, [&](int64_t row) {
      const auto* logits = static_cast<const T*>(x.logits.data) + row * x.columns;
      const float maximum = x.maximum[row];
      double sum = 0;
      for (int64_t begin = 0; begin < x.columns; begin += kBlock) {
        const int64_t end = begin + kBlock < x.columns ? begin + kBlock : x.columns;
        Float part{};
        vectors(begin, end, [&](int64_t i, auto n) {
          part += first_lanes(exp(load(logits + i, n) - maximum), n);
        });
        sum += static_cast<double>(sum_of(part));
      }
      x.sum[row] = static_cast<float>(sum);
      const int64_t target = x.targets[row] - x.first_column;
      const bool is_here = target >= 0 && target < x.columns;
      x.target[row] = is_here ? load(logits + target, 1)[0] - maximum : 0.0F;
    });
  });
}

void CpuKernels::run(const CrossEntropyGradient& x) {
  const bool has_gradient = x.weight != nullptr;
  with_type(x.logits.type, [&]<typename T>(T*) {
    team_.each(x.rows, has_gradient ? x.columns : 1, [&](int64_t row) {
      x.loss[row] = log(all(x.sum[row]))[0] - x.target[row];
      if (!has_gradient) return;
      const auto* logits = static_cast<const T*>(x.logits.data) + row * x.columns;
      const int64_t start = row * x.columns, target = x.targets[row] - x.first_column;
      const float maximum = x.maximum[row], weight = x.weight[row];
      const float factor = weight / x.sum[row];
      const auto set = [&](int64_t i, auto n) {
        store(x.dlogits, start + i, factor * exp(load(logits + i, n) - maximum), n);
      };
      const bool is_here = target >= 0 && target < x.columns;
      // The target's gradient includes the subtraction of 1 before rounding; its logit is read
      // first.
      const Float logit = is_here ? load(logits + target, 1) : Float{};
      vectors(0, x.columns, set);
      if (is_here) {
        store(x.dlogits, start + target, factor * exp(logit - maximum) - weight, 1);
      }
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
