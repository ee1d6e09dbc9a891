// Who is told how far passes are: parameters and gradients of one part of a model move between
// ranks while others are computed with.
#pragma once

#include <cstdint>

namespace ferry {

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

}  // namespace ferry
