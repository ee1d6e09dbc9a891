// Rows of a table by token, where a rank may hold a part of the table.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// y[i] = table[ids[i] - first], or zeros where the row is not among those of this rank.
struct EmbeddingForward {
  int64_t count = 0, width = 0;
  int64_t first = 0, rows = 0;  // of the table: those that this rank holds
  const int32_t* ids = nullptr;
  ConstArray table;
  Array y;
  bool accumulate = false;  // y += (positions on top of tokens)
};

/// dtable[ids[i] - first] += dy[i], by rising i for each row of the table. (A GPU sorts
/// tokens by row, and adds up parts of them first: the order follows from ids, first and rows.)
struct EmbeddingBackward {
  int64_t count = 0, width = 0;
  int64_t first = 0, rows = 0;
  const int32_t* ids = nullptr;
  ConstArray dy;
  Array dtable;
};

}  // namespace ferry::kernels
