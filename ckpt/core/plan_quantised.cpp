#include "ckpt/core/plan_quantised.h"

#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

bool is_one_chunk(const Entry& entry) {
  return entry.chunks.size() == 1 && entry.chunks[0].box == Box::whole(entry.shape) &&
         entry.chunks[0].strides.empty() && !entry.chunks[0].is_run();
}

bool is_matrix_of(const Entry& entry, DType dtype) {
  return entry.dtype == dtype && entry.shape.size() == 2 && is_one_chunk(entry);
}

bool fits(const Plan& plan, const Entry& entry, const Quantise& how) {
  if (how.scales >= plan.target.entries.size() || !plan.recipes[how.scales].is_scales) return false;
  const Entry& scales = plan.target.entries[how.scales];
  if (!is_matrix_of(entry, DType::f8_e4m3) || !is_matrix_of(scales, DType::f32)) return false;
  if (how.values != DType::bf16 && how.values != DType::f16 && how.values != DType::f32) {
    return false;
  }
  if (how.block.size() != 2) return false;
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t block = how.block[axis], extent = entry.shape[axis];
    if (block <= 0 || scales.shape[axis] != extent / block + (extent % block != 0)) return false;
  }
  return true;
}

}  // namespace

void check_quantised(const Plan& plan) {
  std::vector<int> writers(plan.target.entries.size());
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    const auto& quantise = plan.recipes[i].quantise;
    if (!quantise) continue;
    const Entry& entry = plan.target.entries[i];
    if (!fits(plan, entry, *quantise)) {
      fail(ErrorKind::internal, "tensor {} of {}{} cannot be quantised in blocks of {}", entry.name,
           torch_name(entry.dtype), to_string(entry.shape), to_string(quantise->block));
    }
    ++writers[quantise->scales];
  }
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    if (!plan.recipes[i].is_scales || writers[i] == 1) continue;
    fail(ErrorKind::internal, "the scales {} are written by {} tensors",
         plan.target.entries[i].name, writers[i]);
  }
}

}  // namespace ferry
