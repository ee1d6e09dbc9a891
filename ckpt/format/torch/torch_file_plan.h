// A torch.save file as part of a plan: its value is known, the elements of its tensors are moved.
#pragma once

#include <map>
#include <string>

#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {

class TorchFilePlan {
 public:
  /// What the file's value is made of.
  Draft& draft() noexcept { return draft_; }

  /// A row-major tensor of this shape in a storage of its own, whose elements in this order
  /// `elements` makes: a tensor of one axis. Its name is for messages.
  Value tensor(StateTensor elements, const Dims& shape);

  /// Adds the file `path` of the value `root`, one item of the plan.
  void add_to(Plan& plan, const std::string& path, const Value& root) &&;

 private:
  Draft draft_;
  std::map<std::string, StateTensor> by_storage_;
};

}  // namespace ferry
