// The experts of a layer, one by one as files on the hub name them, or in tensors of all experts as
// transformers holds them while it runs and as some programs save them.
//
// One by one: `experts.E.gate_proj.weight` and `experts.E.up_proj.weight` [ffn, hidden],
// `experts.E.down_proj.weight` [hidden, ffn]. Fused: `experts.gate_up_proj` [experts, gate and up
// rows, hidden], `experts.down_proj` [experts, hidden, ffn].
//
// Source: transformers conversion_mapping.py.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// How one kind of models names them.
struct ExpertNames {
  std::string_view fused_module, module;  // before "experts.": ".mlp.", ".block_sparse_moe."
  std::string_view gate, up, down;        // of one expert; gate empty: there is none
};

/// Those of a model_type whose files on the hub have experts one by one; null for others.
const ExpertNames* expert_names_of(std::string_view model_type);

/// Whether fused tensors of this model_type are [experts, hidden, ffn] on the hub, the other way
/// round than above; nothing where that is not known.
std::optional<bool> are_experts_transposed(std::string_view model_type);

/// One expert's tensor in a fused one: `box` of one element along the first axis.
struct ExpertPart {
  std::string name;
  Box box;
};

/// The tensors that are fused in `name`, which may be the scales of such a tensor; empty where it
/// is no such name or shape.
std::vector<ExpertPart> experts_in(const std::string& name, const Dims& shape,
                                   const ExpertNames& names);

/// Where one expert's tensor is in the fused one of all experts.
struct ExpertPlace {
  std::string fused;  // its name
  int64_t expert = 0;
  int64_t half = 0, halves = 1;  // of the rows
};

/// How a model that lacks a tensor of a name has it: as several, as a part of one, or under another
/// name.
struct OtherForm {
  std::vector<ExpertPart> parts;
  std::optional<ExpertPlace> place;
  std::string renamed;
};

/// Nothing where the model, which has the tensors that `has` is true of, has none of these. Knows
/// all kinds of experts, and the names that transformers changes when it loads such models.
std::optional<OtherForm> other_form(const std::string& name, const Dims& shape,
                                    const std::function<bool(const std::string&)>& has);

/// The recipe of a part of what `whole`, of this shape, makes: `box` without the first axis, along
/// which it has one element.
Recipe recipe_of_part(const Recipe& whole, const Dims& shape, const Box& box);

}  // namespace ferry
