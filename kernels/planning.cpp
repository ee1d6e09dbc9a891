#include "kernels/planning.h"

#include <algorithm>

#include "kernels/gpu_attention.h"

namespace ferry::kernels {
namespace {

double product(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Operations of one matrix product over all visible pairs of a query and a key: half of them with
// the causal mask.
double attention_product(const AttentionShape& shape, int64_t dim) {
  return product(shape.sequences * shape.heads * shape.queries, shape.keys, dim) / 2;
}

}  // namespace

// Reserves nothing: a program may plan for hundreds of ranks, each on a thread.
std::shared_ptr<void> PlanningKernels::allocate(size_t bytes) {
  constexpr size_t kPage = 4096;
  bytes_ += static_cast<int64_t>(bytes);
  void* const memory = reinterpret_cast<void*>(next_address_);
  next_address_ += (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  return {memory, [](void*) {}};
}

void PlanningKernels::forward(const Matmul& op) { operations_ += product(op.m, op.n, op.k); }

void PlanningKernels::forward(const Float8Matmul& op) { operations_ += product(op.m, op.n, op.k); }

void PlanningKernels::forward(const GroupedMatmul& op) {
  operations_ += product(op.rows, op.n, op.k);
}

void PlanningKernels::forward(const GroupedFloat8Matmul& op) {
  operations_ += product(op.rows, op.n, op.k);
}

void PlanningKernels::forward(const GroupedMatmulGradient& op) {
  operations_ += product(op.rows, op.n, op.m);
}

void PlanningKernels::forward(const GroupedFloat8Gradient& op) {
  operations_ += product(op.rows, op.n, op.m);
}

void PlanningKernels::forward(const AttentionForward& op) {
  operations_ +=
      attention_product(op.shape, op.shape.dim) + attention_product(op.shape, op.shape.value_dim);
}

// Recomputed scores, and gradients of queries, keys, values and probabilities.
void PlanningKernels::forward(const AttentionBackward& op) {
  operations_ += 3 * attention_product(op.shape, op.shape.dim) +
                 2 * attention_product(op.shape, op.shape.value_dim);
  // A device's workspace is an eighth larger than requested.
  const auto workspace = [](int64_t bytes) { return bytes + bytes / 8; };
  const int64_t own = workspace(attention_workspace_bytes(op));
  const auto shape = fused(op);
  const int64_t at_once = shape ? batches_at_once(*shape) : 0;
  const int64_t bytes = at_once > 0 ? workspace(fused_bytes(*shape, at_once)) : own;
  attention_bytes_ = std::max(attention_bytes_, own);
  fused_attention_bytes_ = std::max(fused_attention_bytes_, bytes);
}

}  // namespace ferry::kernels
