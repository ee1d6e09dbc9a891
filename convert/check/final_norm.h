// The norm after the layers of a model whose type is not known.
#pragma once

#include <string_view>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"
#include "convert/check/stacks.h"

namespace ferry {

/// Adds norms outside of the layers of which only the bias is there, and warns where the layers of
/// `decoder` have norms and none of their size follows them, or one without the bias that they
/// have. Nothing is said of layers that norm what they give, which need no norm after them, nor of
/// types that are known to have none.
void find_missing_final_norm(const Catalog& catalog, const Stack& decoder,
                             std::string_view model_type, Findings& findings);

}  // namespace ferry
