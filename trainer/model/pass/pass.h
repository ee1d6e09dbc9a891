// What modules share while they compute one micro-batch.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/model/pass/arena.h"
#include "trainer/model/pass/pass_watcher.h"

namespace ferry {

/// The ranks that compute one micro-batch together. A communicator of one rank where a kind of
/// parallelism is not used.
struct ModelRanks {
  Communicator& tensor;
  Communicator& context;
  Communicator& tensor_and_context;
  /// Those that hold all experts between them: the parts of a rank's experts one after another.
  Communicator& experts;
  Communicator& stage;  // these and, of other micro-batches, those with the same layers
  bool sequence_parallel = false;
};

/// What is not kept between a forward and a backward pass, but computed once more (recompute.h).
struct Recompute {
  enum class Layers : uint8_t { none, in_blocks, first_ones };
  Layers layers = Layers::none;
  int64_t count = 0;  // layers of a block; how many layers of a chunk
  // Of every layer:
  bool norms = false;              // what norms of hidden states give
  bool latent_up = false;          // latent attention: queries, keys and values
  bool mlp = false, moe = false;   // all of it
  bool expert_activation = false;  // what the activation function gives
  bool shared_experts = false;
};

/// What a pass computes, beside its memory.
struct PassValues {
  int64_t sequences = 0;
  int64_t positions = 0;  // of each sequence that this context rank has

  // Of the positions that this context rank has; null: none.
  const float* cosine = nullptr;  // rotary tables
  const float* sine = nullptr;
  const int32_t* document_begin = nullptr;  // attention.h
  bool trains = true;                       // false: no backward pass follows
  bool repeats = false;                     // an earlier pass, whose tokens and losses were counted
  Recompute recompute = {};
  /// What the load-balancing losses' gradients count, as the loss of the micro-batch does: the loss
  /// scale over the number of micro-batches.
  float auxiliary_scale = 1;

  // Of dropout: what is dropped is a function of the step and of a token's number in it, whichever
  // rank and micro-batch has the token.
  double hidden_dropout = 0, attention_dropout = 0;
  uint64_t dropout_key = 0;               // of the step
  const int64_t* row_ids = nullptr;       // own_rows(): sample in the step · its length + position
  const int64_t* sequence_ids = nullptr;  // sequences: sample in the step

  int64_t parameters_version = 0;  // another one where parameters may have changed

  PassWatcher* watcher = nullptr;  // null: nobody is told how far the pass is
  int64_t chunk = 0;               // of the rank, for the watcher

  void begin_part(int64_t part) const {
    if (watcher != nullptr) watcher->before_forward(chunk, part);
  }
  void end_part(int64_t part) const {
    if (watcher != nullptr) watcher->after_backward(chunk, part);
  }
};

/// One micro-batch's way through a model chunk. Rows are tokens, sequence first: row s · sequences
/// + b is position s of sequence b. With sequence parallelism a tensor rank has rows of its own
/// between its linears: those of a slice of the positions.
struct Pass : PassValues {
  kernels::Kernels& kernels;
  ModelRanks& ranks;
  Arena& kept;       // until the micro-batch's backward pass is over
  Arena& scratch;    // until the module is
  Arena& transient;  // in the place of `kept` for what is repeated, until the repeated part is over

  int64_t rows() const { return sequences * positions; }
  int64_t own_rows() const {
    return ranks.sequence_parallel ? rows() / ranks.tensor.size() : rows();
  }
};

}  // namespace ferry
