// The tensors of a Hugging Face model under their own names, in a new floating-point type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "convert/export/export_tensors.h"

namespace ferry {

/// Every tensor of `catalog`, in its order. With a dtype, tensors that are wider than most and than
/// it stay: warnings name them.
ExportedTensors stored_tensors(const Catalog& catalog, std::optional<DType> dtype,
                               std::vector<std::string>& warnings);

}  // namespace ferry
