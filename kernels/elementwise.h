// Elementwise operations, and sums over rows.
#pragma once

#include "kernels/array.h"
#include "kernels/random.h"

namespace ferry::kernels {

/// y = x, converted (ties to even) where the types differ.
struct Copy {
  int64_t count = 0;
  ConstArray x;
  Array y;
};

/// Copies strided rows: y's row i starts at i · y_stride, x's at i · x_stride.
struct CopyRows {
  int64_t rows = 0, width = 0, x_stride = 0, y_stride = 0;
  ConstArray x;
  Array y;
  bool accumulate = false;
};

/// Sets all bytes to zero.
struct Clear {
  int64_t count = 0;
  Array y;
};

/// y = a + b, computed in fp32 and rounded once; y may be either.
struct Add {
  int64_t count = 0;
  ConstArray a, b;
  Array y;
};

/// y = x · factor · *factor_on_device (1 when null); y may be x.
struct Scale {
  int64_t count = 0;
  ConstArray x;
  Array y;
  float factor = 1;
  const float* factor_on_device = nullptr;
};

/// y[i] *= *gate[i] for rows: for a shared expert's output, by the sigmoid of one number per row.
struct GateRows {
  int64_t rows = 0, width = 0;
  const float* logit = nullptr;
  ConstArray x;
  Array y;
};
struct GateRowsBackward {
  int64_t rows = 0, width = 0;
  const float* logit = nullptr;
  ConstArray x, dy;
  Array dx;
  float* dlogit = nullptr;
};

/// sum[j] = or += sum over rows of x[i][j], by blocks of rows in a fixed order, for gradients of
/// biases.
struct SumRows {
  int64_t rows = 0, width = 0;
  ConstArray x;
  Gradient sum;
};

/// y = residual + x · kept / (1 - probability): element e of row i is kept if the number at (key,
/// row_ids[i] · total_width + first_column + e) is at least the probability. The same operation
/// without the residual computes gradients.
struct Dropout {
  int64_t rows = 0, width = 0;
  double probability = 0;
  uint64_t key = 0;
  const int64_t* row_ids = nullptr;
  int64_t first_column = 0, total_width = 0;
  ConstArray x;
  ConstArray residual = {};
  Array y;
};

/// *sum += the sum of squares of x, in double precision, by blocks in a fixed order. Infinite or
/// NaN if an element is.
struct SumOfSquares {
  int64_t count = 0;
  ConstArray x;
  double* sum = nullptr;
};

/// *sum += sum of x[i] · weight[i] (1 when null), in double precision in a fixed order.
struct WeightedSum {
  int64_t count = 0;
  const float* x = nullptr;
  const float* weight = nullptr;
  double* sum = nullptr;
};

// Embeddings: rows of a table by token; a rank may hold a part of the table.

/// y[i] = table[ids[i] - first], or zeros if the row is not on this rank.
struct EmbeddingForward {
  int64_t count = 0, width = 0;
  int64_t first = 0, rows = 0;  // rows of the table on this rank
  const int32_t* ids = nullptr;
  ConstArray table;
  Array y;
  bool accumulate = false;  // y += (adds positions to tokens)
};

/// dtable[ids[i] - first] += dy[i], by ascending i for each row of the table. (A GPU sorts tokens
/// by row and sums parts of them first: the order depends only on ids, first and rows.)
struct EmbeddingBackward {
  int64_t count = 0, width = 0;
  int64_t first = 0, rows = 0;
  const int32_t* ids = nullptr;
  ConstArray dy;
  Array dtable;
};

}  // namespace ferry::kernels
