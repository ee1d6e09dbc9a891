// Activation recomputation: forward passes that keep nothing for the backward pass and are repeated
// before it.
//
// Source: megatron/core/transformer/{transformer_config,transformer_block}.py; Chen et al. 2016,
// Korthikanti et al. 2022.
#pragma once

#include "trainer/model/pass/pass.h"

namespace ferry {

/// The next layers from `first` on, of a chunk of `layers`, that are treated alike: recomputed
/// together, as a block of which only the input is kept, or not recomputed.
struct RecomputedBlock {
  int64_t end = 0;  // after its last layer
  bool is_repeated = false;
};
RecomputedBlock recomputed_block(const Recompute& recompute, int64_t first, int64_t layers);

/// Passes that allocate from pass.transient what they would keep: the first one, and the one that
/// repeats it, in which nothing is counted again.
Pass passing(const Pass& pass);
Pass repeating(const Pass& pass);

/// y = module(x); nothing is kept if the pass will be repeated.
template <typename Module>
typename Module::Saved forward_of(const Module& module, bool is_repeated, Pass& pass,
                                  kernels::ConstArray x, kernels::Array y) {
  if (!is_repeated) return module.forward(pass, x, y);
  const ArenaScope scope(pass.transient);
  Pass first = passing(pass);
  module.forward(first, x, y);
  return {};
}

/// The module's backward pass, after repeating its forward pass if needed. Rows of x and dx have
/// `width` elements.
template <typename Module>
void backward_of(const Module& module, bool is_repeated, Pass& pass,
                 const typename Module::Saved& saved, int64_t width, kernels::ConstArray x,
                 kernels::ConstArray dy, kernels::Array dx) {
  if (!is_repeated) return module.backward(pass, saved, x, dy, dx);
  const ArenaScope scope(pass.transient), scratch(pass.scratch);
  Pass again = repeating(pass);
  const kernels::Array y = pass.scratch.take(pass.own_rows() * width, dx.type);
  module.backward(pass, module.forward(again, x, y), x, dy, dx);
}

}  // namespace ferry
