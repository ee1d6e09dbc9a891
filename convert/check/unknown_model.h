// A model of a type that is not known here, compared with what its config.json says in the words
// that most models use.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"

namespace ferry {

/// Where numbers of layers and experts, sizes of the embedding or tensors outside the layers are
/// not those that `config` leads to expect. What a config.json does not say is not checked.
void compare_with_config(const Catalog& catalog, const nlohmann::json& config, bool has_head,
                         Findings& findings);

}  // namespace ferry
