// Attention whose sequences context-parallel ranks share.
//
// Source: Liu et al. 2023 (Ring Attention); Megatron-LM's split of a sequence in 2 · ranks parts,
// of which rank r has parts r and 2 · ranks - 1 - r, so that all have as much to do.
#pragma once

#include "trainer/model/pass/pass.h"

namespace ferry {

/// The kernel's operation over all positions of the sequences. Shapes and strides are those of the
/// rank's own positions.
void attend(Pass& pass, const kernels::AttentionForward& own);
void attend(Pass& pass, const kernels::AttentionBackward& own);

/// Has probabilities dropped out, as the pass says, by their place among all heads, queries and
/// keys of layer `layer`. The shape's heads are those of this tensor rank.
void drop_out(const Pass& pass, int64_t layer, kernels::AttentionShape& shape);

}  // namespace ferry
