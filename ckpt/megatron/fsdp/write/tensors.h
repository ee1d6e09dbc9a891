// The tensors of a run as fsdp_dtensor stores them.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// One of the model's parameters, as one rank's modules have it.
struct FsdpParameter {
  std::string name;     // of its module: "decoder.layers.0.mlp.linear_fc1.weight"
  bool decayed = true;  // what decides in which parameter group it is
  bool routed_expert = false;
  bool embedding = false;  // or the output layer
  bool trainable = true;
};

struct FsdpTensors {
  std::vector<FsdpParameter> parameters;
  std::vector<StateTensor> model, optimizer;  // under their whole keys
  std::vector<Dropped> dropped;               // of the source, besides what the state drops
};

/// `optimizer`: with moments; the model's tensors are the masters in any case, where there are any.
FsdpTensors fsdp_tensors(const RunState& state, bool optimizer);

}  // namespace ferry
