// Which tensors of a model are parts of another one's quantised form: values of 8 bits, values
// packed in integers, scales, zero points, orders and tables.
//
// One table of the endings that programs give to such parts (quantised_tensors.cpp): fp8 by blocks,
// channels and tensors (DeepSeek, transformers, compressed-tensors, ModelOpt), MXFP4, NVFP4, GPTQ,
// AWQ, bitsandbytes, quanto. Endings that a model's own parameters may have, too (".scale"), count
// only where a tensor of quantised values is next to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry {

enum class QuantisedRole : uint8_t {
  none,              // a parameter or a buffer as it is
  codes,             // one 8-bit value an element: times the scale of its block it is the parameter
  packed,            // several values an element
  integers,          // in place of a parameter; how many values each holds is not known
  weight_scale,      // of codes, packed values or integers
  second_scale,      // of a whole tensor whose blocks have scales: times those
  second_divisor,    // the same, which those are divided by
  zero_points,       // integers that are subtracted before the scale
  shape,             // of the parameter
  activation_scale,  // of a layer's inputs or outputs
  cache_scale,       // of keys and values in the cache
  other,             // orders, tables
};

/// What one entry of a catalog is.
struct QuantisedPart {
  QuantisedRole role = QuantisedRole::none;
  /// The parameter that it is a part of, as a model that is not quantised names it: "a.weight" of
  /// "a.weight_scale_inv", "a.weight_packed" and "a.qweight", "experts.gate_up_proj" of
  /// "experts.gate_up_proj_blocks". Of Role none its own name. Empty: of no parameter (a cache's
  /// scale), or of one that is not there.
  std::string parameter;
  /// Position in the catalog of the codes, packed values or integers of that parameter; its own
  /// where it is that.
  std::optional<uint32_t> values;
  int64_t bits = 0;  // of a value: of codes 8, of packed ones fewer; 0 for all others
};

/// One part for each entry of `catalog`, by names, dtypes and shapes; nothing is read. `known_bits`
/// are those of a packed value as config.json says them, 0 where it does not: they count where
/// shapes leave it open.
std::vector<QuantisedPart> quantised_parts(const Catalog& catalog, int64_t known_bits = 0);

}  // namespace ferry
