// What of a checkpoint is compared, and under which names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/core/recipe.h"
#include "convert/model/expert_names.h"

namespace ferry {

/// A tensor as the other side of a comparison would call it, and how it is read.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Recipe recipe;            // from the catalog's entries
  bool vocabulary = false;  // its rows may be padded
  /// Bytes of a tensor that the other side stores and this one only implies: then of no dtype and
  /// shape of its own, and no recipe.
  std::string constant;
};

/// The tensors as they are stored.
std::vector<TensorView> stored_views(const Catalog& catalog);

/// The model of a Megatron checkpoint under the names of Hugging Face, with all rows of the
/// vocabulary, as one of `family` or of the one that it is recognised as. As plan_export.
std::vector<TensorView> hugging_face_views(const Checkpoint& checkpoint,
                                           const std::optional<std::string>& family);

/// One view for each index of the first axis, which is left out: "a.b.c" gives "a.b.0.c", ..., with
/// the number put in at `position` of the name ("0." before "c").
std::vector<TensorView> unstack(const TensorView& view, size_t position);

/// One view for each of these parts of a view.
std::vector<TensorView> split_experts(const TensorView& view, std::vector<ExpertPart> experts);

}  // namespace ferry
