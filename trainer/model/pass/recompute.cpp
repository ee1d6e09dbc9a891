#include "trainer/model/pass/recompute.h"

#include <algorithm>

namespace ferry {

RecomputedBlock recomputed_block(const Recompute& recompute, int64_t first, int64_t layers) {
  switch (recompute.layers) {
    case Recompute::Layers::in_blocks:
      return {std::min(first + recompute.count, layers), true};
    case Recompute::Layers::first_ones:
      if (first < recompute.count) return {first + 1, true};
      break;
    case Recompute::Layers::none:
      break;
  }
  return {layers, false};
}

Pass passing(const Pass& pass) {
  return {pass, pass.kernels, pass.ranks, pass.transient, pass.scratch, pass.transient};
}

Pass repeating(const Pass& pass) {
  Pass again = passing(pass);
  again.repeats = true;
  return again;
}

}  // namespace ferry
