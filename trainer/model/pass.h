// What modules share while they compute one micro-batch.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/model/arena.h"

namespace ferry {

/// The ranks that compute one micro-batch together. A communicator of one rank where a kind of
/// parallelism is not used.
struct ModelRanks {
  Communicator& tensor;
  Communicator& context;
  Communicator& tensor_and_context;
  /// Those that hold all experts between them: the parts of a rank's experts one after another.
  Communicator& experts;
  bool sequence_parallel = false;
};

/// One micro-batch's way through a model chunk. Rows are tokens, sequence first: row s · sequences
/// + b is position s of sequence b. With sequence parallelism a tensor rank has rows of its own
/// between its linears: those of a slice of the positions.
struct Pass {
  kernels::Kernels& kernels;
  ModelRanks& ranks;
  Arena& kept;     // until the micro-batch's backward pass is over
  Arena& scratch;  // until the module is
  int64_t sequences = 0;
  int64_t positions = 0;  // of each sequence that this context rank has

  int64_t rows() const { return sequences * positions; }
  int64_t own_rows() const {
    return ranks.sequence_parallel ? rows() / ranks.tensor.size() : rows();
  }

  // Of the positions that this context rank has; null: none.
  const float* cosine = nullptr;  // rotary tables
  const float* sine = nullptr;
  const int32_t* document_begin = nullptr;  // attention.h
  bool trains = true;                       // false: no backward pass follows
  /// What the load-balancing losses' gradients count, as the loss of the micro-batch does: the loss
  /// scale over the number of micro-batches.
  float auxiliary_scale = 1;

  // Of dropout: what is dropped is a function of the step and of a token's number in it, whichever
  // rank and micro-batch has the token.
  double hidden_dropout = 0, attention_dropout = 0;
  uint64_t dropout_key = 0;               // of the step
  const int64_t* row_ids = nullptr;       // own_rows(): sample in the step · its length + position
  const int64_t* sequence_ids = nullptr;  // sequences: sample in the step
};

}  // namespace ferry
