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

// Memory for intermediate results of a pass, allocated like a stack.

/// A block of device memory. A pass allocates from it in the order of the network and releases in
/// reverse order, so no search is needed, and its size is known before anything runs: it is
/// measured by a pass over kernels that do nothing (planning_kernels).
class Arena {
 public:
  /// Without memory: allocations have null addresses.
  Arena() = default;
  Arena(kernels::Kernels& kernels, int64_t bytes)
      : memory_(kernels.allocate(static_cast<size_t>(bytes))), bytes_(bytes) {}

  /// internal if the block is full.
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
  /// Releases everything allocated since `used` bytes were in use.
  void release(int64_t used) noexcept { used_ = used; }

 private:
  void* take_bytes(int64_t bytes);

  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0, used_ = 0, peak_ = 0;
};

/// Releases what is allocated during its lifetime.
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

// Observes the progress of passes, so that parameters and gradients of one part of a model can move
// between ranks while other parts compute.

/// A part of a chunk (a virtual stage of the rank) is a decoder layer, by its number in the model,
/// or one of those below.
class PassWatcher {
 public:
  static constexpr int64_t kHead = INT64_MAX;  // the final norm and the output layer
  static constexpr int64_t kRest = -1;         // the embeddings, and whatever is in no other part

  virtual ~PassWatcher() = default;

  /// The part's parameters are read next: first the rest's, then those of layers in order, then the
  /// head's.
  virtual void before_forward(int64_t chunk, int64_t part) = 0;
  /// The part's gradients of this step are complete; called in reverse order.
  virtual void after_backward(int64_t chunk, int64_t part) = 0;
};

/// The ranks that compute one micro-batch together. Communicators of one rank stand for kinds of
/// parallelism that are not used.
struct ModelRanks {
  Communicator& tensor;
  Communicator& context;
  Communicator& tensor_and_context;
  /// The ranks that together hold all experts; those that share experts are adjacent.
  Communicator& experts;
  Communicator& stage;  // all ranks with the same layers
  bool sequence_parallel = false;
};

/// What is recomputed in the backward pass instead of kept (recompute.h).
struct Recompute {
  enum class Layers : uint8_t { none, in_blocks, first_ones };
  Layers layers = Layers::none;
  int64_t count = 0;  // layers per block; or layers of a chunk
  // In every layer:
  bool norms = false;              // outputs of norms of hidden states
  bool latent_up = false;          // latent attention: queries, keys and values
  bool mlp = false, moe = false;   // the whole module
  bool expert_activation = false;  // output of the activation function
  bool shared_experts = false;
};

/// The parameters of a pass, without its memory.
struct PassValues {
  int64_t sequences = 0;
  int64_t positions = 0;  // per sequence, on this context rank

  // For the positions of this context rank; may be null.
  const float* cosine = nullptr;  // rotary tables
  const float* sine = nullptr;
  const int32_t* document_begin = nullptr;  // attention.h
  bool trains = true;                       // false: no backward pass follows
  bool repeats = false;                     // recomputation: tokens and losses were already counted
  Recompute recompute = {};
  /// Factor of the load-balancing losses' gradients: the loss scale over the number of
  /// micro-batches.
  float auxiliary_scale = 1;

  // Dropout: a function of the step and of a token's number in it, whichever rank and micro-batch
  // has the token.
  double hidden_dropout = 0, attention_dropout = 0;
  uint64_t dropout_key = 0;               // for the step
  const int64_t* row_ids = nullptr;       // own_rows(): sample in the step · its length + position
  const int64_t* sequence_ids = nullptr;  // sequences: sample in the step

  int64_t parameters_version = 0;  // changes whenever parameters may have changed

  PassWatcher* watcher = nullptr;  // may be null
  int64_t chunk = 0;               // the rank's chunk, for the watcher

  void begin_part(int64_t part) const {
    if (watcher != nullptr) watcher->before_forward(chunk, part);
  }
  void end_part(int64_t part) const {
    if (watcher != nullptr) watcher->after_backward(chunk, part);
  }
};

/// One micro-batch's pass through a model chunk. Rows are tokens, sequence first: row s · sequences
/// + b is position s of sequence b. With sequence parallelism, outside of linear layers a tensor
/// rank has only its own rows: those of a slice of the positions.
struct Pass : PassValues {
  kernels::Kernels& kernels;
  ModelRanks& ranks;
  Arena& kept;       // until the micro-batch's backward pass has ended
  Arena& scratch;    // until the module's pass has ended
  Arena& transient;  // instead of `kept` for recomputation, until the recomputed part has ended

  int64_t rows() const { return sequences * positions; }
  int64_t own_rows() const {
    return ranks.sequence_parallel ? rows() / ranks.tensor.size() : rows();
  }
};

// One micro-batch in device memory.

/// What each row should predict.
struct Targets {
  const int32_t* labels = nullptr;
  /// Weight of each row in the reported sum of losses: 1, or 0 if masked.
  const float* loss_mask = nullptr;
  /// Factor of the gradient of each row's loss: the mask times the loss scale, over the number of
  /// tokens and micro-batches. Null if no backward pass follows.
  const float* loss_weight = nullptr;
  double* loss_sum = nullptr;  // added to: the sum of loss · mask, the same on all tensor ranks
};

/// Rows are tokens, sequence first (pass.h), those of this context rank.
struct MicroBatch {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;  // for learned position embeddings
  Targets targets;
  /// Input and target of a prediction layer: the token after that of the previous layer (0 past the
  /// end of the sequence), and the following one.
  struct Prediction {
    const int32_t* tokens = nullptr;
    Targets targets;
  };
  std::vector<Prediction> predictions;
  kernels::Array logits = {};  // if set, logits are stored here: [rows, columns of this rank]
};

}  // namespace ferry
