// Experts of tensors to be written: one by one, or in tensors of all experts of a layer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/export/export_tensors.h"
#include "convert/model/expert_names.h"

namespace ferry {

/// The fused tensors become those that files on the hub have, in their place, and the layer's other
/// tensors get the names of the hub's module.
void split_experts(std::vector<ExportedTensor>& tensors, const ExpertNames& names);

/// The shape of a model's tensor; null: it has none of the name.
using ShapeOf = std::function<const Dims*(const std::string&)>;

/// Whether the model has the tensor under this name, or fused or split otherwise.
bool is_held(const std::string& name, const Dims& shape, const ShapeOf& shape_of);

/// Splits and fuses tensors so that they are those of a model. `transposed`: as
/// are_experts_transposed(), for matrices that are square. mismatch, naming a tensor, where only
/// some of a layer's experts are there, or nothing says whether the model's are transposed.
void take_form_of(std::vector<ExportedTensor>& tensors, const ShapeOf& shape_of,
                  std::optional<bool> transposed);

/// The model_type of config.json and that of its language model, as far as they are there.
std::vector<std::string> model_types(const Checkpoint& model);

}  // namespace ferry
