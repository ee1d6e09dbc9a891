#include "convert/model/weight_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/base/option_name.h"

namespace ferry {
namespace {

std::string described(const Entry& entry) {
  return fmt::format("{} ({} of {})", entry.name, torch_name(entry.dtype), to_string(entry.shape));
}

std::string next_step() {
  return fmt::format(
      "values are made of 8-bit floats with floating-point scales by blocks, rows or tensors: take "
      "the model that is not quantised, or, for a copy with these weights as they are, {} "
      "without {} and {}",
      option("to", "hugging_face"), option("dtype"), option("quantise_fp8"));
}

// The extents of a block of which `scales` has one element each; empty: it has not. Scales have the
// weight's axes, or the first of them.
Dims block_by_shapes(const Dims& weight, Dims scales) {
  while (!scales.empty() && scales.back() == 1) scales.pop_back();
  if (scales.size() > weight.size()) return {};
  Dims block = weight;
  for (size_t axis = 0; axis < scales.size(); ++axis) {
    if (scales[axis] == weight[axis]) {
      block[axis] = 1;
    } else if (scales[axis] != 1) {
      return {};
    }
  }
  for (int64_t& extent : block) extent = std::max<int64_t>(extent, 1);
  return block;
}

}  // namespace

bool is_float8(const Entry& entry) {
  return is_floating_point(entry.dtype) && size_bytes(entry.dtype) == 1 &&
         can_convert(entry.dtype, DType::f32);
}

WeightScales::WeightScales(const Catalog& catalog, std::optional<Quantisation> quantisation,
                           std::string path)
    : catalog_(catalog),
      quantisation_(std::move(quantisation)),
      path_(std::move(path)),
      parts_(quantised_parts(catalog, quantisation_ ? quantisation_->bits : 0)),
      scales_(parts_.size()) {
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    const QuantisedPart& part = parts_[i];
    if (part.role != QuantisedRole::weight_scale || !part.values) continue;
    if (!scales_[*part.values]) scales_[*part.values] = i;
  }
}

bool WeightScales::is_quantised() const {
  return std::ranges::any_of(parts_, [](const QuantisedPart& part) {
    return part.role == QuantisedRole::codes || part.role == QuantisedRole::packed ||
           part.role == QuantisedRole::integers;
  });
}

bool WeightScales::is_used_up(uint32_t entry) const {
  const QuantisedRole role = parts_.at(entry).role;
  return role == QuantisedRole::weight_scale || role == QuantisedRole::activation_scale ||
         role == QuantisedRole::cache_scale || role == QuantisedRole::other;
}

void WeightScales::check_readable() const {
  const auto refuse = [&](uint32_t found) {
    const Entry& entry = catalog_.entries[found];
    const QuantisedPart& part = parts_[found];
    const auto scale = part.values ? scales_[*part.values] : std::nullopt;
    std::string text = described(entry);
    if (part.values && *part.values != found) {
      text += " of " + described(catalog_.entries[*part.values]);
    } else if (scale) {
      text += " with scales " + described(catalog_.entries[*scale]);
    }
    fail(ErrorKind::unsupported,
         "{}: the weights are quantised{}: found {}, of which no values can be made here; {}",
         path_, quantisation_ ? " by " + to_text(*quantisation_) : "", text, next_step());
  };
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    const QuantisedPart& part = parts_[i];
    const Entry& entry = catalog_.entries[i];
    if (part.role == QuantisedRole::packed || part.role == QuantisedRole::integers ||
        (part.role == QuantisedRole::codes && !is_float8(entry)) ||
        part.role == QuantisedRole::other) {
      refuse(i);
    }
    if (part.role != QuantisedRole::weight_scale) continue;
    if (!part.values) {
      fail(ErrorKind::mismatch,
           "{}: tensor {} holds scales, but the weight that they belong to is missing, or is not "
           "quantised: a part of the model is of another one; download it again",
           path_, described(entry));
    }
    if (!can_convert(entry.dtype, DType::f32) || scales_[*part.values] != i) refuse(i);
  }
  if (!quantisation_ || quantisation_->is_fp8) return;
  fail(ErrorKind::unsupported,
       "{}: the weights are quantised by {}, as config.json says, of which no values can be made "
       "here; {}",
       path_, to_text(*quantisation_), next_step());
}

std::string WeightScales::unused_scales() const {
  int64_t count = 0;
  const Entry* example = nullptr;
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    const QuantisedRole role = parts_[i].role;
    if (role != QuantisedRole::activation_scale && role != QuantisedRole::cache_scale) continue;
    if (count++ == 0) example = &catalog_.entries[i];
  }
  if (count == 0) return {};
  return fmt::format(
      "{} scale{} of activations and caches {} left out, which say how a quantised model computes: "
      "{}{}",
      count, count == 1 ? "" : "s", count == 1 ? "is" : "are", example->name,
      count == 1 ? "" : ", ...");
}

std::optional<BlockScales> WeightScales::scales_of(uint32_t position, uint32_t input) const {
  const Entry& weight = catalog_.entries.at(position);
  if (!is_float8(weight)) return std::nullopt;
  const auto scales = scales_[position];
  if (!scales) {
    fail(ErrorKind::mismatch,
         "{}: tensor {} is of {}, but the model holds no scales of it (such as {}_scale_inv), "
         "without which its values are not known; download it again",
         path_, weight.name, torch_name(weight.dtype), weight.name);
  }
  return BlockScales{input, *scales, block_of(weight, catalog_.entries[*scales])};
}

Dims WeightScales::block_of(const Entry& weight, const Entry& scales) const {
  Dims block = quantisation_ ? quantisation_->block : Dims();
  if (!block.empty() && weight.shape.size() >= block.size()) {
    block.insert(block.begin(), weight.shape.size() - block.size(), 1);
    return block;
  }
  block = block_by_shapes(weight.shape, scales.shape);
  if (block.size() == weight.shape.size()) return block;
  fail(ErrorKind::mismatch,
       "{}: tensor {} is of {} and {} with scales of {}, but config.json has no "
       "quantization_config with the size of its blocks (weight_block_size)",
       path_, weight.name, torch_name(weight.dtype), to_string(weight.shape),
       to_string(scales.shape));
}

}  // namespace ferry
