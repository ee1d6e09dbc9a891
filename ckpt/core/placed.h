// What a target is made of, before its bytes have places in files: tensors with the box that each
// rank writes, and objects. Formats lay these out into plans.
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
  struct Piece {
    Box box;
    int64_t rank = 0;  // global rank of the target; one writes, whoever else holds a copy
  };
  StateTensor tensor;
  std::vector<Piece> pieces;  // cover the tensor exactly once
};

/// A stored object, under its whole key.
struct PlacedObject {
  std::string name;
  std::string archive;  // a torch.save archive
  int64_t rank = 0;
};

/// What a writer makes: a plan for the tensor files, and files that are known already. Paths are
/// inside the target folder; the folder of a path is created by whoever runs the plan.
struct PlannedOutput {
  Plan plan;
  std::vector<std::pair<std::string, std::string>> small_files;  // written last, in this order
  /// A small file that says where the plan's target lies, for plans that are run compressed: its
  /// name, and what makes its content of the target as it was written. Without name: none.
  struct LateFile {
    std::string name;
    std::function<std::string(const Catalog& target)> content;
  };
  LateFile late_file;
  std::vector<std::string> warnings;
  /// Of formats with files of ranks: the rank that each file of the plan belongs to.
  std::vector<int64_t> file_ranks;
};

}  // namespace ferry
