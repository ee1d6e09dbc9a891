// The embedding of a model of any kind, by the names that models give it.
#pragma once

#include "ckpt/core/catalog.h"

namespace ferry {

/// The first tensor of two axes that is called as embeddings are and is in no numbered layer; null
/// where there is none.
const Entry* embedding_of(const Catalog& catalog);

}  // namespace ferry
