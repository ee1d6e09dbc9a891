// config.json and generation_config.json <-> Architecture.
//
// Written so that transformers 5 and 4 both read them: dtype and torch_dtype, rope_theta next to
// rope_parameters and (where positions are scaled) rope_scaling.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/dtype.h"
#include "convert/model/family.h"
#include "convert/model/quantisation.h"
#include "convert/special_tokens.h"

namespace ferry {

/// What the rows of the family write.
nlohmann::json members_json(const Family& family, const Architecture& architecture);

/// The config of a model. Adds to `warnings` what has no counterpart.
nlohmann::json config_json(const Family& family, const Architecture& architecture, DType dtype,
                           const SpecialTokens& tokens, std::vector<std::string>& warnings);

/// Reports what the two sides compute otherwise, whatever the direction.
void report_differences(const Family& family, const Architecture& architecture,
                        std::vector<std::string>& warnings);

nlohmann::json generation_config_json(const SpecialTokens& tokens);

/// What a config.json of a family says, however it says it; what is absent or of another kind
/// leaves the class's default, or nothing. Members that arguments have and a config.json implies
/// are set too. `padded_vocab` stays 0. invalid for layers without end.
Architecture read_architecture(const Family& family, const nlohmann::json& config);

struct ReadConfig {
  const Family* family = nullptr;
  Architecture architecture;
  SpecialTokens tokens;
  std::optional<Quantisation> quantisation;
  std::vector<std::string> warnings;
};

/// Reads a config.json and proves that what was read says the same: it is written again and
/// compared. unsupported, with all reasons, when it says what its family's models in Megatron
/// cannot be; for a model_type of no family (choose_family()), or for members of such a type that
/// the family does not read and that may change what the model computes. How weights are quantised
/// is read and not judged. Members named in `ignored` are left out first, with a warning; invalid
/// for one that is not there.
ReadConfig read_config(const nlohmann::json& config, const std::optional<std::string>& requested,
                       const std::string& path, const std::vector<std::string>& ignored = {});

}  // namespace ferry
