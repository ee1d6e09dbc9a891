#include "kernels/planning.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace ferry::kernels {
namespace {

double product(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Of one matrix product over all pairs of a query and a key that it sees: half of them by the
// causal mask.
double attention_product(const AttentionShape& shape, int64_t dim) {
  return product(shape.sequences * shape.heads * shape.queries, shape.keys, dim) / 2;
}

}  // namespace

std::shared_ptr<void> PlanningKernels::allocate(size_t bytes) {
  bytes_ += static_cast<int64_t>(bytes);
  const size_t length = std::max<size_t>(bytes, 1);
  void* const address =
      ::mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return {address, [length](void* memory) { ::munmap(memory, length); }};
}

void PlanningKernels::run(const Matmul& op) { operations_ += product(op.m, op.n, op.k); }

void PlanningKernels::run(const GroupedMatmul& op) { operations_ += product(op.rows, op.n, op.k); }

void PlanningKernels::run(const GroupedMatmulGradient& op) {
  operations_ += product(op.rows, op.n, op.m);
}

void PlanningKernels::run(const AttentionForward& op) {
  operations_ +=
      attention_product(op.shape, op.shape.dim) + attention_product(op.shape, op.shape.value_dim);
}

// Scores once more, and the gradients of queries, keys, values and probabilities.
void PlanningKernels::run(const AttentionBackward& op) {
  operations_ += 3 * attention_product(op.shape, op.shape.dim) +
                 2 * attention_product(op.shape, op.shape.value_dim);
}

}  // namespace ferry::kernels
