// A Hugging Face folder whose config.json is a known family's: which tensors it must hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_set>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/architecture.h"
#include "convert/model/family.h"
#include "convert/model/hugging_face_tensors.h"
#include "convert/model/mismatch.h"

namespace ferry {

struct KnownModel {
  const Family* family = nullptr;
  Architecture architecture;

  /// Names of all tensors, as transformers saves them.
  std::unordered_set<std::string> names() const;
  /// For a tied model whose embedding is stored as the output layer alone (safetensors'
  /// save_model() keeps one name of the two): gives it the embedding's name. Whether there was one.
  bool name_embedding(Catalog& catalog) const;
  /// What differs between them and those of `catalog`, which Format::hugging_face opened. Buffers,
  /// constants and copies may be there or not; the output layer may be missing where the model is
  /// one without it, and be there where it is tied.
  Misfit compare(const Catalog& catalog, bool has_head) const;
};

/// The model of the config.json of `folder`; nothing where it is of no family, or says what the
/// family's rules do not hold for.
std::optional<KnownModel> known_model(const nlohmann::json& config, const std::string& folder);
/// The model of the config.json in the checkpoint's folder; nothing, too, where there is none to be
/// read.
std::optional<KnownModel> known_model(const Checkpoint& checkpoint);

}  // namespace ferry
