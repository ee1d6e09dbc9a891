// Between the two classes that Megatron-LM builds a transformer of: GPT models, whose layers are
// attention followed by an MLP or experts, and hybrid models, whose layers are one of these each.
// The parameters are the same; names, their numbers and some arguments differ.
//
// Source: tools/checkpoint/gpt_hybrid_conversion.py, core/models/hybrid/hybrid_block.py.
#pragma once

#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Makes a GPT's state that of a hybrid model with twice as many layers ("*-*-", "*E*E"), optimizer
/// included. unsupported for what Megatron-LM's own conversion refuses (MTP layers, latent or
/// experimental attention, layers of several kinds), and for arguments that count layers and mean
/// others in a hybrid model. Nothing happens to a hybrid model.
void make_hybrid(RunState& state);

/// The inverse: bytes and arguments are as they were before make_hybrid(). unsupported for layers
/// in another order or of other kinds, Mamba among them. Nothing happens to a GPT.
void make_gpt(RunState& state);

}  // namespace ferry
