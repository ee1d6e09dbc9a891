// Attention over sequences that are split over context-parallel ranks.
//
// Source: Liu et al. 2023 (Ring Attention); Megatron-LM's split of a sequence in 2 · ranks parts,
// of which rank r has parts r and 2 · ranks - 1 - r, so that all have the same amount of work.
#pragma once

#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// Like the kernel's operation, over all positions of the sequences. Shapes and strides are those
/// of this rank's positions. `sinks`: learned scores of no key, one for each of this rank's heads;
/// may be empty.
void attend(Pass& pass, const kernels::AttentionForward& own, const Parameter& sinks = {});
void attend(Pass& pass, const kernels::AttentionBackward& own, const Parameter& sinks = {});

/// Sets the dropout of probabilities for layer `layer`, a function of their place among all heads,
/// queries and keys. The shape's heads are those of this tensor rank.
void drop_out(const Pass& pass, int64_t layer, kernels::AttentionShape& shape);

}  // namespace ferry
