// Recipes of recipes: what a tensor is made of, where the tensors that it is made of are made of
// others themselves.
#pragma once

#include <span>

#include "ckpt/core/recipe.h"

namespace ferry {

/// `outer`, whose inputs are positions in `made`, as a recipe of what these recipes' inputs are.
/// All of them only move elements: unsupported where scales, halves or zeros are among them.
Recipe compose(const Recipe& outer, std::span<const Recipe> made);

}  // namespace ferry
