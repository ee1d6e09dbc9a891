// Threads that share an operation.
#pragma once

#include <omp.h>

#include <cstdint>

#include "kernels/cpu/signals.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

/// A team of `threads`. OpenMP has a pool for each calling thread, so that several ranks can
/// compute at once. Operations of fewer than kAlone elements run on the calling thread.
class Team {
 public:
  explicit Team(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  /// Calls f(begin, end) for parts of [0, count), multiples of `grain` except the last. The
  /// division depends only on the sizes; results must not depend on it. `elements`: the work per
  /// item.
  template <typename F>
  void parts(int64_t count, int64_t grain, int64_t elements, const F& f) const {
    if (count <= 0) return;
    const int64_t grains = (count + grain - 1) / grain;
    if (threads_ == 1 || grains == 1 || count * elements < kAlone) return f(int64_t{0}, count);
    const SignalsBlocked blocked;
#pragma omp parallel num_threads(threads_)
    {
      const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
      const int64_t begin = grains * me / team * grain;
      const int64_t end = grains * (me + 1) / team * grain;
      if (begin < end) f(begin, end < count ? end : count);
    }
  }

  /// Calls f(i) for each i in [0, count).
  template <typename F>
  void each(int64_t count, int64_t elements, const F& f) const {
    parts(count, 1, elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  }

  /// The same for items of unequal work, dynamically scheduled: f(i, thread).
  template <typename F>
  void tasks(int64_t count, const F& f) const {
    if (threads_ == 1 || count < 2) {
      for (int64_t i = 0; i < count; ++i) f(i, 0);
      return;
    }
    const SignalsBlocked blocked;
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) f(i, omp_get_thread_num());
  }

 private:
  static constexpr int64_t kAlone = 1 << 14;

  int threads_;
};

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
