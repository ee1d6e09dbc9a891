// How many parameters a checkpoint's model has, which is not always how many elements it stores.
//
// Files of whole training states hold optimizer state beside the model. Quantised models store
// several parameters in one integer, and scales, zero points and tables beside them, which are no
// parameters. Those of adapters are counted apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry::tool {

/// What a tensor that is stored as one of the model's is.
enum class ElementKind : uint8_t {
  parameter,     // or a buffer
  packed,        // several parameters in one element
  quantisation,  // scales, zero points, tables, orders
  training,      // of an optimizer, a scheduler, random state
  adapter,       // LoRA and the like; said by whoever knows (convert/adapters.h)
};

struct CountedTensor {
  ElementKind kind = ElementKind::parameter;
  int64_t bits = 0;  // of a packed parameter
};

struct ParameterCount {
  int64_t parameters = 0;         // with the packed ones
  int64_t packed_parameters = 0;  // of these
  int64_t packed_elements = 0;    // that hold them
  int64_t bits = 0;               // of a packed parameter; 0: there are none, or of several sizes
  int64_t quantisation_elements = 0;
  int64_t training_tensors = 0, training_elements = 0;
};

/// What each entry of a catalog is, by its name, dtype and shape and those of its neighbours. Of
/// entries of Role::optimizer: training. `told_bits` are those of a packed parameter as config.json
/// says them, 0 where it does not: they count where shapes leave it open.
std::vector<CountedTensor> element_kinds(const Catalog& catalog, int64_t told_bits = 0);

ParameterCount count_parameters(const Catalog& catalog, const std::vector<CountedTensor>& kinds);

/// "4.00 B, of which 3.50 B are 4-bit values packed in 437.5 M integers".
std::string to_text(const ParameterCount& count);

}  // namespace ferry::tool
