// Cross entropy over a vocabulary: in one step or, if the vocabulary is split over tensor-parallel
// ranks, in three steps with reductions over the ranks in between.
//
// Source: Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// loss[i] = log of the sum of exponentials of row i - its target's logit and, if `weight` is
/// given, dlogits = weight[i] · (softmax - one-hot of the target).
struct CrossEntropy {
  int64_t rows = 0, columns = 0;
  ConstArray logits;
  const int32_t* targets = nullptr;  // below `columns`
  const float* weight = nullptr;     // null: no gradient
  float* loss = nullptr;
  Array dlogits = {};  // may be the logits
};

/// maximum[i] = the largest logit of row i among this rank's columns.
struct LogitMaximum {
  int64_t rows = 0, columns = 0;
  ConstArray logits;
  float* maximum = nullptr;
};

/// For each row: the sum of exp(logit - maximum) over this rank's columns, and logit - maximum of
/// the target; zero if the target is on another rank.
struct LogitSums {
  int64_t rows = 0, columns = 0, first_column = 0;
  ConstArray logits;
  const int32_t* targets = nullptr;
  const float* maximum = nullptr;  // over all ranks
  float* sum = nullptr;
  float* target = nullptr;
};

/// loss[i] = log(sum) - target and, if `weight` is given, dlogits = weight[i] · (softmax - one-hot
/// of the target). dlogits may be the logits.
struct CrossEntropyGradient {
  int64_t rows = 0, columns = 0, first_column = 0;
  ConstArray logits;
  const int32_t* targets = nullptr;
  const float* maximum = nullptr;
  const float* sum = nullptr;     // over all ranks
  const float* target = nullptr;  // over all ranks
  const float* weight = nullptr;  // null: no gradient
  float* loss = nullptr;
  Array dlogits = {};
};

}  // namespace ferry::kernels
