// One micro-batch in the memory of a device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/array.h"

namespace ferry {

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
