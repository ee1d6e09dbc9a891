// A torch.save file as part of a plan: its value is known, the elements of its tensors are moved.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {

class TorchFilePlan {
 public:
  /// `rank`: of several processes that write the file, who writes what has no other writer, and
  /// digests it.
  explicit TorchFilePlan(int64_t rank = 0) : rank_(rank) {}

  /// What the file's value is made of.
  Draft& draft() noexcept { return draft_; }

  /// A row-major tensor of this shape in a storage of its own, whose elements in this order
  /// `elements` makes: a tensor of one axis. Its name is for messages. `parts`, by rising place,
  /// cover that axis, each with the rank that writes it; none: the file's rank writes all.
  Value tensor(StateTensor elements, const Dims& shape, std::vector<Shard> parts = {});

  /// Adds the file `path` of the value `root`, one item of the plan.
  void add_to(Plan& plan, const std::string& path, const Value& root) &&;

 private:
  struct Elements {
    StateTensor tensor;
    std::vector<Shard> parts;
  };

  int64_t rank_;
  Draft draft_;
  std::map<std::string, Elements> by_storage_;
};

}  // namespace ferry
