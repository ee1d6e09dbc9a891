// The output layer and the loss.
#pragma once

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/micro_batch.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// Computes the loss by blocks of rows, and where a backward pass follows at once its gradients:
/// the logits, which would be the largest of all arrays, are never there as a whole.
class OutputLayer {
 public:
  OutputLayer() = default;
  OutputLayer(const ParameterSet& parameters, const Architecture& architecture,
              int64_t tensor_ranks);

  /// Of `x` [own rows, hidden]. Sets dx, the same, where the targets' losses have weights.
  /// `logits`: where they are to be kept.
  void forward(Pass& pass, const Targets& targets, kernels::ConstArray x, kernels::Array dx,
               kernels::Array logits = {}) const;

 private:
  void forward_block(Pass& pass, const Targets& targets, int64_t first, int64_t rows,
                     kernels::ConstArray x, kernels::Array dx, kernels::Array kept) const;
  void shared_cross_entropy(Pass& pass, int64_t rows, const int32_t* labels, const float* weight,
                            kernels::Array logits, float* loss) const;

  Parameter weight_;
  int64_t hidden_ = 0, columns_ = 0;
};

}  // namespace ferry
