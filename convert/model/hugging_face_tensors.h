// A catalog seen as one Hugging Face model: every tensor under the name that the family's rules
// give it, however the file spells and fuses it.
//
// Files of a bare model lack the outermost module ("layers.0..." for "model.layers.0..."). Newer
// files may hold the experts of a layer in one tensor: `experts.gate_up_proj` [experts, gate and up
// rows, in] and `experts.down_proj` [experts, out, in].
//
// Source: transformers conversion_mapping.py, DeepSeek-V3's own files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "ckpt/megatron/model/architecture.h"
#include "convert/model/family.h"

namespace ferry {

/// A tensor, or the rows of one from `row` on of the sub-tensor at `at`.
struct FoundTensor {
  uint32_t entry = 0;  // position in the catalog
  Dims at;             // leading coordinates (expert)
  int64_t row = 0;
  Dims shape;
  DType dtype = DType::f32;
};

class HuggingFaceTensors {
 public:
  /// Refers to the catalog, which must outlive it. `optimizer_kind`: the optimizer's state of this
  /// kind ("exp_avg"), each under the name of its parameter; empty: the model. corrupt when a
  /// tensor stands twice under two spellings.
  HuggingFaceTensors(const Catalog& catalog, const Family& family,
                     const std::string& optimizer_kind = {});

  bool has(const std::string& name) const;

  /// Position in the catalog of a tensor that is stored by itself, without marking it as used.
  std::optional<uint32_t> position(const std::string& name) const;

  /// Nothing when the file has no such tensor. mismatch when experts that are fused are not as many
  /// as `architecture` says. Marks what it finds as used.
  std::optional<FoundTensor> find(const std::string& name, const Architecture& architecture);

  /// Positions in the catalog of tensors that were never found, in order.
  std::vector<uint32_t> unused() const;

 private:
  std::optional<FoundTensor> find_fused(const std::string& name, const Architecture& architecture);

  const Catalog& catalog_;
  std::unordered_map<std::string, uint32_t> positions_;  // by the rules' spelling
  std::vector<bool> used_;
};

/// A move from the tensor as the rules name it, rewritten to start from the entry that holds it.
Move from_entry(Move move, const FoundTensor& found);

}  // namespace ferry
