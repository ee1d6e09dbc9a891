// A catalog seen as one Megatron model: every tensor of every layer under one canonical name,
// however the checkpoint spells and stacks it.
//
// Canonical names are those of a per-layer, per-expert checkpoint written with Transformer Engine:
//   decoder.layers.<layer>.self_attention.linear_qkv.layer_norm_weight
//   decoder.layers.<layer>.mlp.experts.experts.<expert>.linear_fc1.weight
//   mtp.layers.<k>.transformer_layer.<suffix>
// On disk the layers may be stacked on a leading axis, the experts on the next one, parameters
// stored in pieces (gate and up as `_w` and `_v`), norms named as modules of their own, everything
// under "module.".
//
// Source: Megatron-LM transformer_block.py sharded_state_dict, moe/experts.py, mlp.py
// (apply_swiglu_sharded_factory), models/gpt/gpt_layer_specs.py, multi_token_prediction.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/attention_kinds.h"

namespace ferry {

/// What comes before the number of a layer and of an expert in canonical names.
inline constexpr std::string_view kLayersPrefix = "decoder.layers.";
inline constexpr std::string_view kExpertsInfix = ".mlp.experts.experts.";

/// A part of a canonical tensor: rows [row, row + rows) of it are the entry's sub-tensor at `at`.
struct Placed {
  uint32_t entry = 0;  // position in the catalog
  Dims at;             // leading coordinates (layer, expert)
  int64_t row = 0;
  int64_t rows = 0;  // of a scalar: 1
};

struct Located {
  Dims shape;  // canonical
  DType dtype = DType::f32;
  std::vector<Placed> parts;  // one, or the pieces that it is stored in
};

class MegatronModel {
 public:
  /// Refers to both, which must outlive it.
  MegatronModel(const Catalog& catalog, const Architecture& architecture);

  /// Nothing when the checkpoint has no such tensor. mismatch when the stack that holds it has
  /// another number of layers or experts than the arguments say. Marks what it finds as used.
  std::optional<Located> find(const std::string& canonical);

  /// Names of model tensors that were never found, in the catalog's order.
  std::vector<std::string> unused() const;

 private:
  std::optional<Located> find_spelling(const std::string& name);
  void check_pieces(const Placed& first, const Placed& other, bool any_rows) const;
  std::optional<Placed> place(const std::string& name, size_t* rank);
  std::optional<Placed> place_by_kind(const std::string& name);
  std::optional<Placed> lookup(const std::string& key, Dims at, const Dims& extents);

  const Catalog& catalog_;
  const Architecture& architecture_;
  AttentionKinds kinds_;
  std::unordered_map<std::string, uint32_t> positions_;  // by spelling, without "module."
  std::unordered_set<uint32_t> used_;
};

/// A move from the canonical tensor, rewritten to start from the entries that hold it. Inputs are
/// numbered by position in `located.parts`, from `first_input` on.
std::vector<Move> from_entries(const Move& move, const Located& located, uint32_t first_input);

}  // namespace ferry
