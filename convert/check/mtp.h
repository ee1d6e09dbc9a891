// Layers for multi-token prediction (MTP): how many config.json counts, and which tensors are
// theirs.
//
// transformers does not load them and drops them when it saves a model, but not their number in
// config.json, by which vLLM, SGLang and Megatron Bridge expect them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"

namespace ferry {

struct MtpCount {
  std::string member;  // of config.json: "num_nextn_predict_layers"
  int64_t layers = 0;  // at least 1
};

/// What `config`, or the part of it that describes the language model, counts; nothing where it
/// counts none.
std::optional<MtpCount> counted_mtp(const nlohmann::json& config);

/// The part of an MTP layer's tensor's name after the layer's number; empty for another tensor.
/// `decoder_layers`: where MTP layers may follow the decoder's under its names, how many it has; 0:
/// nowhere.
std::string_view inside_mtp_layer(std::string_view name, int64_t decoder_layers);

/// A warning where `config` counts MTP layers and no tensor of `catalog` is of one.
void find_missing_mtp(const Catalog& catalog, const nlohmann::json& config, Findings& findings);

}  // namespace ferry
