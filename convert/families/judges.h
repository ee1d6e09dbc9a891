// By which program each family's conversions were judged: what computed or loaded the same model.
#pragma once

#include <string_view>

namespace ferry {

struct Judges {
  std::string_view family;
  /// Whose runs, with logits, transformers computes the same of; empty: runs of that family came
  /// back from Hugging Face bit for bit, and no more.
  std::string_view of_runs;
  /// What loaded runs made from transformers' models, and computed the same logits.
  std::string_view of_models;
};

/// Null for a family that was added to those of the program.
const Judges* judges_of(std::string_view family);

}  // namespace ferry
