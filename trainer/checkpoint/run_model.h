// The model of a run, as its arguments and its tensors describe it: the same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "convert/model/architecture.h"
#include "trainer/model/layer.h"

namespace ferry {

struct RunModel {
  Architecture architecture;
  ModelLayout layout;
  BufferChoice choice;

  /// `args` is an argparse.Namespace; `tensors` are those of the model, as a checkpoint names them.
  /// unsupported, naming it, for what the arguments say and the trainer does not compute; `path` is
  /// for messages.
  RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path);

  const RunArguments& run() const noexcept { return layout.run(); }
};

}  // namespace ferry
