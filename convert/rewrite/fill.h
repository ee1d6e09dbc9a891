// The tensors of a model that a checkpoint lacks (a vision tower, prediction layers), from the
// model that it was trained from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/export/export_tensors.h"

namespace ferry {

/// Adds the tensors of `original` that are not among `tensors`, which recipes make of `source`, and
/// spells the names and fuses experts as the original does. Returns a catalog of both, in which the
/// recipes count from now on. mismatch when the original lacks a name, or has it with another
/// shape.
Catalog fill_tensors(const Checkpoint& original, const Catalog& source, std::optional<DType> dtype,
                     ExportedTensors& tensors, std::vector<std::string>& warnings);

}  // namespace ferry
