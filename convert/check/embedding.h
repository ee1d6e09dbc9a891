// The embedding of a model of any kind, by the names that models give it, and the output layer that
// may be the same.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "ckpt/core/catalog.h"
#include "convert/check/known_model.h"

namespace ferry {

/// The first tensor of two axes that is called as embeddings are and is in no numbered layer; null
/// where there is none.
const Entry* embedding_of(const Catalog& catalog);
const Entry* embedding_of(std::span<const Entry* const> entries);

struct OutputLayer {
  std::string name;
  bool is_tied = false;  // to the embedding
};

/// What the configuration says; `known`: null where it is of no family.
OutputLayer output_layer_of(const nlohmann::json& config, const KnownModel* known);

/// The tensor of that name where it is the embedding's own bytes, as torch.save keeps the two names
/// of a tied one; else null.
const Entry* second_name_of_embedding(const Catalog& catalog, const std::string& name);

}  // namespace ferry
