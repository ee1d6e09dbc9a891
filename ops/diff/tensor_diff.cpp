#include "ops/diff/tensor_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ops/diff/compare.h"

namespace ferry {
namespace {

// A constant takes the shape of what it is compared with, if that has as many bytes.
void shape_constant(TensorView& constant, const TensorView& other) {
  if (constant.constant.empty()) return;
  const auto size = static_cast<uint64_t>(size_bytes(other.dtype));
  const auto elements = static_cast<uint64_t>(element_count(other.shape, other.name));
  const uint64_t held = constant.constant.size() / size;
  constant.dtype = other.dtype;
  constant.shape = held == elements ? other.shape : Dims{static_cast<int64_t>(held)};
}

// The shape itself, or of a vocabulary the rows that both have, if the others can be padding.
std::optional<Dims> common_shape(const TensorView& a, const TensorView& b,
                                 std::optional<int64_t> vocabulary,
                                 std::vector<std::string>& notes) {
  if (a.shape == b.shape) return a.shape;
  if (!(a.vocabulary || b.vocabulary) || a.shape.empty() || a.shape.size() != b.shape.size() ||
      !std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1)) {
    return std::nullopt;
  }
  Dims common = a.shape;
  common[0] = std::min(a.shape[0], b.shape[0]);
  const bool padding = vocabulary && common[0] >= *vocabulary;
  notes.push_back(fmt::format(
      "{}: rows from {} on, which only {} has, {}", a.name, common[0],
      a.shape[0] > common[0] ? "A" : "B",
      padding ? fmt::format("are padding of a vocabulary of {}", *vocabulary)
      : vocabulary
          ? fmt::format("are not padding: the vocabulary has {}", *vocabulary)
          : "would be padding if the vocabulary is so small, but neither side has its size"));
  return padding ? std::optional(common) : std::nullopt;
}

}  // namespace

std::string_view name(TensorStatus status) noexcept {
  switch (status) {
    case TensorStatus::equal:
      return "equal";
    case TensorStatus::values:
      return "values";
    case TensorStatus::dtype:
      return "dtype";
    case TensorStatus::shape:
      return "shape";
    case TensorStatus::only_in_a:
      return "only_in_a";
    case TensorStatus::only_in_b:
      return "only_in_b";
  }
  return "?";
}

TensorDiff judge(TensorPair& pair, const JudgeOptions& options, std::vector<std::string>& notes) {
  TensorDiff diff;
  diff.name = pair.any().name;
  if (pair.a && pair.b) {
    shape_constant(*pair.a, *pair.b);
    shape_constant(*pair.b, *pair.a);
  }
  if (pair.a) diff.dtype_a = pair.a->dtype, diff.shape_a = pair.a->shape;
  if (pair.b) diff.dtype_b = pair.b->dtype, diff.shape_b = pair.b->shape;
  if (!pair.a || !pair.b) {
    diff.status = pair.a ? TensorStatus::only_in_a : TensorStatus::only_in_b;
    return diff;
  }
  const std::optional<Dims> common = common_shape(*pair.a, *pair.b, options.vocabulary, notes);
  if (!common) {
    diff.status = TensorStatus::shape;
    return diff;
  }
  const bool same_type = diff.dtype_a == diff.dtype_b;
  const bool numbers = has_values(diff.dtype_a) && has_values(diff.dtype_b);
  if (!same_type && !(options.ignore_dtype && numbers)) diff.status = TensorStatus::dtype;
  diff.compared = *common;
  diff.by_value = same_type || numbers;
  return diff;
}

}  // namespace ferry
