// What modules share while they compute one micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/array.h"
#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"

namespace ferry {

// Memory for what a pass computes, taken and given back like a stack.

/// A block of a device's memory. Whatever a pass needs is taken from it in the order of the network
/// and given back in the reverse order, so that nothing is ever searched for, and its size is known
/// before anything runs: a pass over kernels that do nothing (planning_kernels) tells it.
class Arena {
 public:
  /// Nothing is allocated; what is taken lies nowhere.
  Arena() = default;
  Arena(kernels::Kernels& kernels, int64_t bytes)
      : memory_(kernels.allocate(static_cast<size_t>(bytes))), bytes_(bytes) {}

  /// internal when the block is full.
  kernels::Array take(int64_t count, kernels::Type type) {
    return {take_bytes(count * size_bytes(type)), type};
  }
  template <typename Element>
  Element* take(int64_t count) {
    return static_cast<Element*>(take_bytes(count * static_cast<int64_t>(sizeof(Element))));
  }

  int64_t size() const noexcept { return bytes_; }
  int64_t used() const noexcept { return used_; }
  int64_t peak() const noexcept { return peak_; }
  /// Gives back all that was taken since `used` bytes were.
  void release(int64_t used) noexcept { used_ = used; }

 private:
  void* take_bytes(int64_t bytes);

  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0, used_ = 0, peak_ = 0;
};

/// Gives back what is taken during its life.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), used_(arena.used()) {}
  ~ArenaScope() { arena_.release(used_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t used_;
};

// Who is told how far passes are: parameters and gradients of one part of a model move between
// ranks while others are computed with.

/// A part of a chunk (a virtual stage of the rank) is a decoder layer, by its number in the model,
/// or one of those below.
class PassWatcher {
 public:
  static constexpr int64_t kHead = INT64_MAX;  // the final norm and the output layer
  static constexpr int64_t kRest = -1;         // the embeddings, and all that is of no other part

  virtual ~PassWatcher() = default;

  /// The part's parameters are read next: the rest's first, then those of layers in their order,
  /// then the head's.
  virtual void before_forward(int64_t chunk, int64_t part) = 0;
  /// Nothing is added to the part's gradients any more in this step: told in the other order.
  virtual void after_backward(int64_t chunk, int64_t part) = 0;
};

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

// One micro-batch in the memory of a device.

/// What each row is to predict.
struct Targets {
  const int32_t* labels = nullptr;
  /// What each row's loss counts in the sum that is reported: 1, or 0 for masked ones.
  const float* loss_mask = nullptr;
  /// What the gradient of each row's loss counts: the mask times the loss scale, over the number of
  /// tokens and micro-batches. Null: no backward pass follows.
  const float* loss_weight = nullptr;
  double* loss_sum = nullptr;  // added to: the sum of loss · mask, the same on all tensor ranks
};

/// Rows are tokens, sequence first (pass.h), those of this context rank.
struct MicroBatch {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;  // for learned embeddings of positions
  Targets targets;
  /// What a prediction layer takes and predicts: the token behind that of the layer before it (0
  /// where the sequence is over), and the one that follows.
  struct Prediction {
    const int32_t* tokens = nullptr;
    Targets targets;
  };
  std::vector<Prediction> predictions;
  kernels::Array logits = {};  // where they are to be kept: [rows, columns of this rank]
};

}  // namespace ferry
