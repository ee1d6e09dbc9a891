// The 8-bit weights of a Hugging Face model, as recipes make values of them.
//
// A weight of float8 times the scale of its block is its value. Blocks are those that config.json
// says, or follow from the shapes: one scale for the tensor, one a row, one an expert.
//
// Source: transformers integrations/finegrained_fp8.py (Fp8Dequantize), compressed-tensors
// quantization/lifecycle/forward.py, DeepSeek-V3's own files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"
#include "convert/model/quantisation.h"

namespace ferry {

class WeightScales {
 public:
  /// Refers to the catalog, which must outlive it. `path` is named in errors.
  WeightScales(const Catalog& catalog, std::optional<Quantisation> quantisation, std::string path);

  const QuantisedPart& part(uint32_t entry) const { return parts_.at(entry); }
  bool is_quantised() const;  // some tensor holds values of a quantised weight

  /// What keeps values from being made of the weights: unsupported for packed values, integers,
  /// zero points and scales that are no floating-point numbers, saying what was found and what may
  /// be done; mismatch for scales whose weight is missing, or is not quantised.
  void check_readable() const;

  /// Whether a tensor is of no use once values are made of the weights: scales and the like.
  bool is_used_up(uint32_t entry) const;
  /// One sentence on scales of activations and of the cache; empty where there are none.
  std::string unused_scales() const;

  /// The scales of a weight of float8, for input `input` of a recipe; nothing of another tensor.
  /// mismatch when they are missing, or do not fit its shape.
  std::optional<BlockScales> scales_of(uint32_t entry, uint32_t input) const;

 private:
  Dims block_of(const Entry& weight, const Entry& scales) const;

  const Catalog& catalog_;
  std::optional<Quantisation> quantisation_;
  std::string path_;
  std::vector<QuantisedPart> parts_;
  std::vector<std::optional<uint32_t>> scales_;  // of each entry: the first of its weight scales
};

/// True of the types whose elements are 8-bit floating-point numbers.
bool is_float8(const Entry& entry);

}  // namespace ferry
