// The model of a run, as its arguments and its tensors describe it: the same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/model/layer.h"

namespace ferry {

struct RunModel : StateLayout {
  Architecture architecture;

  /// `args` is an argparse.Namespace; `tensors` are those of the model, as a checkpoint names them.
  /// unsupported, naming it, for what the arguments say and the trainer does not compute; `path` is
  /// for messages.
  RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path);

  const RunArguments& run() const noexcept { return layout.run(); }

 private:
  RunModel(Architecture described, std::vector<ModelTensor> tensors,
           const RunArguments& run_arguments);
};

}  // namespace ferry
