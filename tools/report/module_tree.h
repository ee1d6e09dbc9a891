// Sizes of a checkpoint by module, layers and experts taken together.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry::tool {

struct ModuleNode {
  std::string name;  // parts of a path: "decoder.layers.*"; of the root empty
  int64_t tensors = 0;
  int64_t parameters = 0;
  uint64_t model_bytes = 0, optimizer_bytes = 0;
  std::set<std::string, std::less<>> numbers;  // that '*' stands for at the end of the name
  std::vector<ModuleNode> children;            // largest first

  uint64_t bytes() const { return model_bytes + optimizer_bytes; }
};

/// All tensors by the parts of their names. Parts that are numbers are one "*"; state of the
/// optimizer counts where its parameter stands. A node with one child is joined with it. At most 12
/// levels: what is longer stays one part.
ModuleNode module_tree(const Catalog& catalog);

/// The name with '*' in place of each part that is a number ("a.0.b.17" gives "a.*.b.*"), and these
/// numbers.
std::string starred(std::string_view name, std::vector<std::string>* numbers = nullptr);

}  // namespace ferry::tool
