// Token and position embeddings.
#pragma once

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

class Embedding {
 public:
  Embedding() = default;
  Embedding(const ParameterSet& parameters, const Architecture& architecture, int64_t tensor_ranks);

  /// Input: rows of all tensor ranks.
  struct Input {
    const int32_t* tokens = nullptr;
    const int32_t* positions = nullptr;  // for learned position embeddings
    int64_t depth = 0;  // 0: the model's; 1, 2, ...: its prediction layers', with their own dropout
  };

  /// y [own rows, hidden].
  void forward(Pass& pass, const Input& input, kernels::Array y) const;
  /// dy may be changed.
  void backward(Pass& pass, const Input& input, kernels::Array dy) const;

 private:
  Parameter words_, positions_;
  int64_t hidden_ = 0, rows_ = 0, positions_count_ = 0;
};

}  // namespace ferry
