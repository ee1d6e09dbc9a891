// config.json and generation_config.json <-> Architecture.
//
// Written so that transformers 5 and 4 both read them: dtype and torch_dtype, rope_theta beside
// rope_parameters and (where positions are scaled) rope_scaling.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "convert/model/family.h"

namespace ferry {

struct SpecialTokens {
  std::optional<int64_t> bos, eos, pad;
};

/// The config of a model. Adds to `warnings` what has no counterpart.
nlohmann::json config_json(const Family& family, const Architecture& architecture, DType dtype,
                           const SpecialTokens& tokens, std::vector<std::string>& warnings);

nlohmann::json generation_config_json(const SpecialTokens& tokens);

/// Fills what the family's fields say; keys that are absent or of another kind leave the default.
Architecture read_config_fields(const Family& family, const nlohmann::json& config);

}  // namespace ferry
