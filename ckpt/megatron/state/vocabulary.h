// The vocabulary's padding: Megatron-LM gives the embedding and the output layer more rows than
// there are tokens, so that tensor ranks share them evenly.
//
// Source: megatron/training/vocab_utils.py, core/tensor_parallel/layers.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Rows for `tokens` tokens: the next multiple of divisor x tensor ranks.
int64_t padded_vocabulary(int64_t tokens, int64_t divisor, int64_t tensor_ranks);

/// Gives the vocabulary's tensors, their optimizer state too, the rows that the target arguments
/// ask for: rows beyond the tokens are cut off, new ones are zero. A padding that the source's own
/// arguments do not explain (a size chosen by hand, unknown tokens) is kept, and only made longer
/// where the target's tensor ranks could not share it. Sets padded_vocab_size of `state.args`,
/// which are the target's; `source` are those that the checkpoint was saved with. `divisor`,
/// if given, replaces make_vocab_size_divisible_by.
void pad_vocabulary(RunState& state, const RunArguments& source, std::optional<int64_t> divisor);

/// Gives the vocabulary's tensors exactly `rows` rows: new ones are zero. mismatch, naming the
/// numbers, where rows would be cut that may be tokens. `path` is for messages.
void set_vocabulary_rows(RunState& state, int64_t rows, const std::string& path);

}  // namespace ferry
