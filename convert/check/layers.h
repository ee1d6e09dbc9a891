// The layers of a model of any kind, compared with each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"
#include "convert/check/stacks.h"

namespace ferry {

/// Tensors whose dtype is not that of the same tensor in all other layers, and 16-bit floats of the
/// kind that the rest of the model is not: warnings.
void find_odd_dtypes(const Catalog& catalog, Findings& findings);

/// Adds layers that lack a tensor that all others of their kind have, or have it in another shape.
/// `kinds` names the kind of each layer; empty: not known. That the first layer has less is a
/// warning: in some models it has nothing to add to or to normalise. So is what a layer without
/// two others of its kind lacks of a part, such as attention, that layers of other kinds have
/// whole. Nothing is said of what the first layer lacks in every model of its type: tensors whose
/// names, after the layer's number, begin with `not_in_the_first`, unless that is empty.
void compare_with_each_other(const Stack& stack, const std::vector<std::string>& kinds,
                             std::string_view not_in_the_first, Findings& findings);

}  // namespace ferry
