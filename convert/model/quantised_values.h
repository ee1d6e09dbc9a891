// Quantised weights of a Hugging Face model as tensors of their values.
//
// Which tensors hold a weight follows from names and types (quantised_tensors.h), and the form from
// those and the shapes; config.json says the size of blocks where shapes do not. Forms: 8-bit
// floats with scales of blocks, rows, tensors or experts; MXFP8; MXFP4 of compressed-tensors,
// DeepSeek-V4 and gpt-oss; NVFP4 of ModelOpt and compressed-tensors; 4 and 8 bits packed by
// compressed-tensors.
//
// Experts of gpt-oss become tensors of the shape that they have where the model is not quantised,
// [experts, in, out], whose last axes the quantised ones have the other way round.
//
// Source: transformers integrations/{finegrained_fp8,mxfp4}.py; compressed-tensors compressors/;
// ModelOpt torch/quantization/qtensor; DeepSeek-V3's and -V4's own files.
#pragma once

#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/core/catalog.h"
#include "convert/model/quantisation.h"

namespace ferry {

struct QuantisedValues {
  SharedCatalog catalog;  // where nothing is quantised, as it was
  bool any = false;       // some weight is quantised
  /// One sentence on scales of activations and of the cache, which are left out; empty: there are
  /// none.
  std::string left_out;
  std::string forms;  // "NVFP4 (28 weights)"; empty where nothing is quantised
};

/// The same tensors in the same order, with one of bf16 (or of the type of its scales, where codes
/// are packed) for each quantised weight, under the name of the weight. `path` is named in errors:
/// unsupported for a form that is not read, saying what was found and what may be done; mismatch
/// for parts that are missing or do not fit.
QuantisedValues values_of(const SharedCatalog& catalog,
                          const std::optional<Quantisation>& quantisation, const std::string& path);

/// The same of a checkpoint, with what the configuration in its folder says.
QuantisedValues values_of(const Checkpoint& checkpoint);

/// Whether some tensor holds codes of a quantised weight.
bool has_quantised_weights(const Catalog& catalog);

/// A sentence where config.json says that weights are quantised by a method that is seen in tensors
/// and none is, or says nothing of weights that are; empty where the two agree.
std::string quantisation_mismatch(const std::optional<Quantisation>& quantisation,
                                  bool is_quantised);

}  // namespace ferry
