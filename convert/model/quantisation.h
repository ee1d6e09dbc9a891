// Quantised weights as config.json describes them (quantization_config), or ModelOpt's
// hf_quant_config.json next to it.
//
// Source: transformers utils/quantization_config.py; compressed-tensors' quantization_args.py;
// ModelOpt's and DeepSeek-V3's own files.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "ckpt/base/box.h"
#include "ckpt/io/file_system.h"

namespace ferry {

inline constexpr const char* kModelOptConfig = "hf_quant_config.json";

struct Quantisation {
  std::string method = "an unknown method";  // "fp8", "gptq", "compressed-tensors", ...
  std::string form;                          // "float-quantized", "NVFP4"; empty: not named
  int64_t bits = 0, group = 0;               // of a value; values of one scale; 0: not named
  /// The tensors say how values are made of the weights (quantised_values.h), with:
  bool is_known = false;
  Dims block;  // of a scale; empty: as the shapes of the scales say
};

/// "compressed-tensors, float-quantized, 8 bits".
std::string to_text(const Quantisation& quantisation);

/// Nothing where the configuration (null: there is none) has none.
std::optional<Quantisation> quantisation_of(const nlohmann::json* config);

/// The same, with the files of a folder.
std::optional<Quantisation> quantisation_of(const nlohmann::json* config, const FileSystem& files,
                                            const std::string& folder);

}  // namespace ferry
