// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) over the last axis.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// y = (x - mean) / sqrt(var + epsilon) · weight + bias; RMSNorm has no mean and bias, and uses the
/// mean of squares instead of the variance. Computed in fp32 for all types. Rows may be strided,
/// like query heads inside a fused projection: row (i, j) starts at i · row_stride + j ·
/// head_stride.
struct NormForward {
  int64_t rows = 0, width = 0;
  int64_t heads = 1;                        // per row, each normalized separately
  int64_t row_stride = 0, head_stride = 0;  // in elements; 0: contiguous
  double epsilon = 1e-5;
  bool rms = true;
  bool one_plus_weight = false;  // the parameter is the weight minus 1
  ConstArray x;
  /// Optional: added to x first, and where the sum is stored, rounded to its type; contiguous rows.
  ConstArray residual = {};
  Array sum = {};
  ConstArray weight;
  ConstArray bias = {};      // LayerNorm only
  Array y;                   // may be x; strides are those of x
  float* mean = nullptr;     // rows · heads, for the backward pass; not for RMSNorm
  float* inverse = nullptr;  // rows · heads: 1 / sqrt(...)
};

/// Its gradients. Adds to dx if `accumulate`.
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
