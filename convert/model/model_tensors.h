// The tensors of a model that is described neutrally, as Megatron-LM would save them.
#pragma once

#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/model_layout.h"

namespace ferry {

/// Named and shaped as in a torch_dist checkpoint (convert/import/import_tensors.h), in the order
/// of the network. `dtype` is the model's; what is kept in fp32 by design is f32.
std::vector<ModelTensor> model_tensors(const Architecture& architecture, DType dtype);

}  // namespace ferry
