// The final norm, the output layer and the loss.
#pragma once

#include "convert/model/architecture.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/norm.h"

namespace ferry {

/// Computes the loss by blocks of rows, and where a backward pass follows at once its gradients,
/// down to the norm's output: the logits, which would be the largest of all arrays, are never there
/// as a whole.
class Head {
 public:
  struct Saved {
    NormLayer::Saved norm;
    kernels::Array dnormed;  // gradient of the norm's output, [own rows, hidden]
  };

  Head() = default;
  Head(const ParameterSet& parameters, const Architecture& architecture, int64_t tensor_ranks);

  Saved forward(Pass& pass, const MicroBatch& batch, kernels::ConstArray x) const;
  /// dx is set.
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::Array dx) const;

 private:
  void forward_block(Pass& pass, const MicroBatch& batch, int64_t first, int64_t rows,
                     kernels::ConstArray normed, kernels::Array dnormed) const;

  NormLayer norm_;
  Parameter weight_;
  int64_t hidden_ = 0, columns_ = 0;
};

}  // namespace ferry
