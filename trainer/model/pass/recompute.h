// What is computed twice, so that less of it has to be kept: forward passes without what their
// backward pass needs, which are repeated before it.
//
// Source: megatron/core/transformer/{transformer_config,transformer_block}.py; Chen et al. 2016,
// Korthikanti et al. 2022.
#pragma once

#include "trainer/model/pass/pass.h"

namespace ferry {

/// Which layers from `first` on, of a chunk of `layers`, are treated alike: repeated together, as a
/// block of which nothing but the input is kept, or not repeated.
struct RecomputedBlock {
  int64_t end = 0;  // behind its last layer
  bool is_repeated = false;
};
RecomputedBlock recomputed_block(const Recompute& recompute, int64_t first, int64_t layers);

/// A pass that keeps nothing: what it would keep is in pass.transient. The first one, or the one
/// that repeats it, in which nothing counts again.
Pass passing(const Pass& pass);
Pass repeating(const Pass& pass);

/// y = module(x); nothing is kept when the pass is going to be repeated.
template <typename Module>
typename Module::Saved forward_of(const Module& module, bool is_repeated, Pass& pass,
                                  kernels::ConstArray x, kernels::Array y) {
  if (!is_repeated) return module.forward(pass, x, y);
  const ArenaScope scope(pass.transient);
  Pass first = passing(pass);
  module.forward(first, x, y);
  return {};
}

/// The module's backward pass, behind a repetition of its forward pass where that is wanted. Rows
/// of x and dx have `width` elements.
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
