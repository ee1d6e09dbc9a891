// How many parameters a checkpoint's model has, which is not always how many elements it stores.
//
// Files of whole training states hold optimizer state next to the model. Quantised models store
// several parameters in one integer, and scales, zero points and tables, which are not parameters
// (quantised_tensors.h). Those of adapters are counted apart.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/summary.h"

namespace ferry {

/// What a tensor that is stored as one of the model's is.
enum class ElementKind : uint8_t {
  parameter,     // or a buffer
  packed,        // several parameters in one element
  integers,      // of a quantised weight: an unknown number of parameters
  quantisation,  // scales, zero points, tables, orders
  table,         // integers that no scale makes weights of: positions, tokens, experts by token
  training,      // of an optimizer, a scheduler, random state
  adapter,       // LoRA and the like; said by whoever knows (convert/adapters.h)
};

struct CountedTensor {
  ElementKind kind = ElementKind::parameter;
  int64_t bits = 0;  // of a packed parameter
};

/// What each entry of a catalog is, by its name, dtype and shape and those of its neighbours;
/// entries of Role::optimizer are training state. `known_bits`: as quantised_parts().
std::vector<CountedTensor> element_kinds(const Catalog& catalog, int64_t known_bits = 0);

/// How many parameters an entry of this kind holds; 0 of what is none.
int64_t parameters_in(const Entry& entry, const CountedTensor& kind);

ParameterCount count_parameters(const Catalog& catalog, const std::vector<CountedTensor>& kinds);

}  // namespace ferry
