// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) over the last axis.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// y = (x - mean) / sqrt(var + epsilon) · weight + bias; of RMSNorm without mean and bias, and with
/// the mean of squares instead of the variance. Computed in fp32 whatever the type of x, y and the
/// parameters is.
///
/// Rows may lie apart, as the heads of queries inside a fused projection do: row (i, j) begins at
/// i · row_stride + j · head_stride.
struct NormForward {
  int64_t rows = 0, width = 0;
  int64_t heads = 1;                        // of each row, each normalised by itself
  int64_t row_stride = 0, head_stride = 0;  // in elements; 0: without gaps
  double epsilon = 1e-5;
  bool rms = true;
  bool one_plus_weight = false;  // the parameter is the weight less 1
  ConstArray x;
  /// What is added to x first, and where the sum goes, rounded to its type; rows lie without gaps.
  ConstArray residual = {};
  Array sum = {};
  ConstArray weight;
  ConstArray bias = {};      // LayerNorm only
  Array y;                   // may be x; strides are those of x
  float* mean = nullptr;     // rows · heads, for the backward pass; not of RMSNorm
  float* inverse = nullptr;  // rows · heads: 1 / sqrt(...)
};

/// Gradients of it. dx is added to when `accumulate`.
struct NormBackward {
  int64_t rows = 0, width = 0;
  int64_t heads = 1;
  int64_t row_stride = 0, head_stride = 0;
  bool rms = true;
  bool one_plus_weight = false;
  bool accumulate = false;
  ConstArray x;
  ConstArray weight;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  ConstArray dy;  // strides are those of x
  Array dx;       // may be dy; strides are those of x
  Gradient dweight;
  Gradient dbias = {};
};

}  // namespace ferry::kernels
