// Names that transformers gives to tensors while a model runs, in files: its own classes load them,
// engines that know the names of the hub skip them or fail.
//
// Source: transformers conversion_mapping.py; sglang issue 38618 (524 of 1,609 tensors skipped
// without a word).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ckpt/core/catalog.h"
#include "ckpt/summary.h"
#include "convert/check/findings.h"

namespace ferry {

/// Finds such tensors of a model whose files have other names on the hub.
void check_dialect(const Catalog& catalog, const nlohmann::json& config, Loader loader,
                   Findings& findings);

}  // namespace ferry
