// The tensors of a Hugging Face model under their own names, in a new floating-point type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "convert/export/export_tensors.h"
#include "convert/model/quantisation.h"

namespace ferry {

struct StoredTensorOptions {
  std::optional<DType> dtype;                // none: as stored
  std::optional<Quantisation> quantisation;  // of the weights, as config.json says
};

/// Every tensor of `catalog`, in its order. With a dtype, weights of fp8 become values of it and
/// their scales are used up, those of activations are left out, and tensors that are wider than
/// most and than it stay: warnings name them. As WeightScales where weights are quantised
/// otherwise, or their scales are missing.
ExportedTensors stored_tensors(const Catalog& catalog, const StoredTensorOptions& options,
                               const std::string& path, std::vector<std::string>& warnings);

}  // namespace ferry
