#include "ckpt/core/plan_quantised.h"

#include <algorithm>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kZerosInElement = 8;

bool is_one_chunk(const Entry& entry) {
  return entry.chunks.size() == 1 && entry.chunks[0].box == Box::whole(entry.shape) &&
         entry.chunks[0].strides.empty() && !entry.chunks[0].is_run();
}

bool holds(const Plan& plan, uint32_t position, DType dtype, int64_t elements) {
  if (position >= plan.target.entries.size()) return false;
  const Entry& entry = plan.target.entries[position];
  return entry.dtype == dtype && entry.elements() == elements && is_one_chunk(entry);
}

bool fits(const Plan& plan, uint32_t position, const Quantise& how) {
  if (how.values != DType::bf16 && how.values != DType::f16 && how.values != DType::f32) {
    return false;
  }
  if (how.shape.size() != 2 || how.block.size() != 2 || how.block[0] <= 0 || how.block[1] <= 0) {
    return false;
  }
  const int64_t in_element = codes_per_element(how.rule);
  const int64_t columns = blocks_in(how.shape[1], in_element);
  if (how.block[1] % in_element != 0 && how.block[1] < how.shape[1]) return false;
  if (!holds(plan, position, codes_type(how.rule), how.shape[0] * columns)) return false;
  const std::vector<QuantisedOutput> parts = parts_of(how);
  if (how.parts.size() != parts.size()) return false;
  const Dims grid = block_grid(how.shape, how.block);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t rows =
        parts[i].kind == QuantisedOutput::zeros ? blocks_in(grid[0], kZerosInElement) : grid[0];
    const int64_t count = parts[i].kind == QuantisedOutput::global ? 1 : rows * grid[1];
    if (!holds(plan, how.parts[i], parts[i].dtype, count)) return false;
    if (!plan.recipes[how.parts[i]].is_scales) return false;
  }
  return true;
}

}  // namespace

std::vector<QuantisedOutput> parts_of(const Quantise& how) {
  using Part = QuantisedOutput;
  switch (how.rule) {
    case QuantiseRule::fp8_tensor:
      return {{Part::global, DType::f32}};
    case QuantiseRule::fp8_exponents:
      return {{Part::scales, DType::f8_e8m0}};
    case QuantiseRule::mxfp8:
    case QuantiseRule::mxfp4:
    case QuantiseRule::mxfp4_up:
      return {{Part::scales, DType::u8}};
    case QuantiseRule::nvfp4:
    case QuantiseRule::nvfp4_divided:
      return {{Part::scales, DType::f8_e4m3}, {Part::global, DType::f32}};
    case QuantiseRule::int4:
      return {{Part::scales, how.values}};
    case QuantiseRule::int4_zeros:
      return {{Part::scales, how.values}, {Part::zeros, DType::i32}};
    default:
      return {{Part::scales, DType::f32}};
  }
}

DType codes_type(QuantiseRule rule) noexcept {
  switch (rule) {
    case QuantiseRule::fp8:
    case QuantiseRule::fp8_exponents:
    case QuantiseRule::fp8_tensor:
    case QuantiseRule::mxfp8:
      return DType::f8_e4m3;
    case QuantiseRule::int4:
    case QuantiseRule::int4_zeros:
      return DType::i32;
    default:
      return DType::u8;
  }
}

int64_t codes_per_element(QuantiseRule rule) noexcept {
  return codes_in_byte(rule) * size_bytes(codes_type(rule));
}

int64_t codes_in_byte(QuantiseRule rule) noexcept {
  return codes_type(rule) == DType::f8_e4m3 ? 1 : 2;
}

bool needs_largest(QuantiseRule rule) noexcept {
  return rule == QuantiseRule::fp8_tensor || rule == QuantiseRule::nvfp4 ||
         rule == QuantiseRule::nvfp4_divided;
}

const Dims& made_shape(const Entry& entry, const Recipe& recipe) noexcept {
  return recipe.quantise ? recipe.quantise->shape : entry.shape;
}

void check_quantised(const Plan& plan) {
  std::vector<int> writers(plan.target.entries.size());
  for (uint32_t i = 0; i < plan.recipes.size(); ++i) {
    const auto& quantise = plan.recipes[i].quantise;
    if (!quantise) continue;
    const Entry& entry = plan.target.entries[i];
    if (!fits(plan, i, *quantise)) {
      fail(ErrorKind::internal, "tensor {} of {}{} cannot be quantised in blocks of {}", entry.name,
           torch_name(entry.dtype), to_string(entry.shape), to_string(quantise->block));
    }
    for (const uint32_t part : quantise->parts) ++writers[part];
  }
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    if (!plan.recipes[i].is_scales || writers[i] == 1) continue;
    fail(ErrorKind::internal, "the scales {} are written by {} tensors",
         plan.target.entries[i].name, writers[i]);
  }
}

}  // namespace ferry
