// Which weights of a model become blocks of 8-bit floats, and how they are called.
//
// Those of linear layers: tensors of two axes whose names hold "weight", but for embeddings, norms,
// the output layer, routers and the small or sensitive layers that serving keeps in 16 bits.
//
// Source: slime tools/convert_hf_to_fp8.py; DeepSeek-V3's and Qwen3's published files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/export/export_tensors.h"
#include "convert/model/expert_names.h"

namespace ferry {

/// Turns those tensors into float8_e4m3fn with a tensor `...weight_scale_inv` after each: fp32, one
/// scale a block of 128 x 128. Experts that are fused into tensors of three axes become single ones
/// under the names of `experts` first; where that is null they stay, and a warning says so. Returns
/// what quantization_config then says. unsupported when there is no such tensor or they are
/// quantised already.
nlohmann::ordered_json quantise_fp8(ExportedTensors& tensors, const ExpertNames* experts,
                                    const std::string& path, std::vector<std::string>& warnings);

}  // namespace ferry
