// What inspect() finds out beyond the catalog.
#pragma once

#include <string>

#include "ops/inspect.h"

namespace ferry {

/// `given` is the path as the user gave it. Reads names of files, and config.json.
FurtherFacts further_facts(const Checkpoint& checkpoint, const ModelSummary& model,
                           const std::string& given);

}  // namespace ferry
