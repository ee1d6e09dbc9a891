// The weights of an export: from a family's links to target entries with recipes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/plan.h"
#include "convert/model/family.h"
#include "convert/model/megatron_model.h"

namespace ferry {

struct ExportedTensor {
  Entry entry;  // name, dtype, shape; no chunks yet
  Recipe recipe;
  std::string constant;  // the bytes, of a tensor that is made from nothing
};

struct ExportedTensors {
  std::vector<ExportedTensor> tensors;  // in the order of the network
  std::vector<Dropped> dropped;         // vocabulary padding
  DType dtype = DType::f32;             // that most elements have
  int64_t rounded = 0;  // elements of norms that Megatron-LM stores less 1, or the family does
};

/// mismatch, naming all of them, when tensors are missing, left over or of another shape than the
/// family's.
ExportedTensors export_tensors(const Catalog& catalog, const Family& family,
                               const Architecture& architecture, std::optional<DType> dtype,
                               const std::string& path);

}  // namespace ferry
