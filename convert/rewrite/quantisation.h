// Quantised weights as config.json tells of them (quantization_config).
//
// Source: transformers utils/quantization_config.py; DeepSeek-V3's and Qwen3's own files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "ckpt/base/box.h"

namespace ferry {

struct Quantisation {
  std::string method;  // "fp8", "gptq", "awq", "bitsandbytes", ...
  Dims fp8_block;      // of weights in blocks of float8_e4m3fn; empty: they are otherwise
};

/// Nothing where the configuration (null: there is none) tells of none.
std::optional<Quantisation> quantisation_of(const nlohmann::json* config);

}  // namespace ferry
