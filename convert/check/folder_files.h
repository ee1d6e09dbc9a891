// What stands next to a model's weights: its tokenizer, generation_config.json, processors, and
// the code that config.json names.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"
#include "convert/check/findings.h"

namespace ferry {

void check_folder_files(const Checkpoint& checkpoint, const nlohmann::json& config, Loader loader,
                        Findings& findings);

}  // namespace ferry
