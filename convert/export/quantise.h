// Which weights of a model are quantised as they are written, in which form, and how the tensors
// and config.json are called then.
//
// Those of linear layers: tensors of two axes whose names end in ".weight", but for embeddings,
// norms, the output layer (by its name, or by the shape of the embedding), routers and the small or
// sensitive layers that serving keeps in 16 bits; and those whose rows are not a multiple of what
// has one scale.
//
// Source: slime tools/convert_hf_to_fp8.py and convert_hf_to_int4_direct.py; miles
// tools/convert_hf_to_mxfp8.py and convert_hf_to_nvfp4.py; compressed-tensors quantization/ and
// compressors/; ModelOpt torch/export/{quant_utils,convert_hf_config}.py; DeepSeek-V3's, Qwen3's
// and gpt-oss's published files.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/export/export_tensors.h"
#include "convert/model/expert_names.h"

namespace ferry {

/// Names of the forms: "fp8", "mxfp4", "nvfp4", ...
std::vector<std::string_view> quantised_forms();

/// What is known of the model that is quantised.
struct QuantisedModel {
  const ExpertNames* experts = nullptr;  // fused ones become single ones first; null: they stay
  /// Whether fused experts are [experts, in, out]; needed for gpt-oss's form, which takes them so.
  std::optional<bool> transposed;
  std::string path;  // for errors
  /// A warning says which weights are quantised and which are left: nothing but names and shapes
  /// says which layers of a model of an unknown type are linear.
  bool is_unknown = false;
};

/// What goes into the files of the model.
struct QuantisedFiles {
  nlohmann::ordered_json config;  // quantization_config
  std::string model_opt;          // content of hf_quant_config.json; empty: there is none
};

/// Turns the weights into codes with their scales after them. Tensors of experts that stay fused
/// are left, and a warning says so. invalid for a name that is not a form's; unsupported when there
/// is no weight to quantise, or they are quantised already.
QuantisedFiles quantise(std::string_view form, ExportedTensors& tensors,
                        const QuantisedModel& model, std::vector<std::string>& warnings);

}  // namespace ferry
