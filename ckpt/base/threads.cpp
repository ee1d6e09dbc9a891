#include "ckpt/base/threads.h"

#include <sched.h>

#include <algorithm>

namespace ferry {

int thread_count(int requested) {
  if (requested > 0) return requested;
  constexpr int kMost = 64;
  cpu_set_t allowed;  // the call fails where there are more cores than it can hold
  const int cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMost);
}

}  // namespace ferry
