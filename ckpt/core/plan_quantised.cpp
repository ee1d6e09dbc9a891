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
  return how.block.size() == 2 && how.block[0] > 0 && how.block[1] > 0 &&
         scales.shape == block_grid(entry.shape, how.block);
}

}  // namespace

Dims block_grid(const Dims& shape, const Dims& block) {
  Dims grid;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    grid.push_back(shape[axis] / block[axis] + (shape[axis] % block[axis] != 0));
  }
  return grid;
}

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
