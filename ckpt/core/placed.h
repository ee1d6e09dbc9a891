// What a target is made of, before its bytes have places in files: tensors with the box that each
// rank writes, and objects. Formats turn these into plans.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// A tensor that a plan makes, whole.
struct StateTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Recipe recipe;  // writes all of `shape`
  Role role = Role::model;
};

/// A tensor with the box that each rank writes. A flat optimizer bucket is such a tensor, too: one
/// axis, and a recipe that gathers it.
struct PlacedTensor {
  StateTensor tensor;
  /// Boxes that cover the tensor exactly once, each with the global rank of the target that writes
  /// it, whoever else holds a copy.
  std::vector<Shard> shards;
};

/// A stored object, under its whole key.
struct PlacedObject {
  std::string name;
  std::string archive;  // a torch.save archive
  int64_t rank = 0;
};

/// Everything that is stored under a name.
struct PlacedState {
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedObject> objects;
};

/// What a writer makes: a plan for the tensor files, and files that are known already. Paths are
/// inside the target folder; the folder of a path is created by whoever runs the plan.
struct PlannedOutput {
  Plan plan;
  std::vector<std::pair<std::string, std::string>> small_files;  // written last, in this order
  /// A small file that describes the plan's target, for plans that are run compressed: its name,
  /// and the function that makes its content from the target as it was written. No name: none.
  struct LateFile {
    std::string name;
    std::function<std::string(const Catalog& target)> content;
  };
  LateFile late_file;
  std::vector<std::string> warnings;
};

}  // namespace ferry
