// Token and position embeddings.
#pragma once

#include "convert/model/architecture.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass.h"

namespace ferry {

class Embedding {
 public:
  Embedding() = default;
  Embedding(const ParameterSet& parameters, const Architecture& architecture, int64_t tensor_ranks);

  /// y [own rows, hidden].
  void forward(Pass& pass, const MicroBatch& batch, kernels::Array y) const;
  /// dy may be changed.
  void backward(Pass& pass, const MicroBatch& batch, kernels::Array dy) const;

 private:
  Parameter words_, positions_;
  int64_t hidden_ = 0, rows_ = 0, positions_count_ = 0;
};

}  // namespace ferry
