#include "ops/reshard/matrices.h"

#include "ckpt/base/error.h"
#include "ckpt/base/option_name.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {

void check_matrices(const ReshardOptions& options, bool remainders, RunState& state) {
  const MatrixOptimizer matrices = matrix_optimizer(state.args.value);
  if (!matrices.any || !has_optimizer(state) || options.optimizer == ReshardOptimizer::none) return;
  if (remainders) {
    fail(ErrorKind::unsupported,
         "{}: of a run with {} Megatron-LM keeps the masters of matrices in fp32 alone; {}",
         option("masters", "remainders"), matrices.name, option("masters", "fp32"));
  }
  if (options.optimizer == ReshardOptimizer::legacy) {
    fail(ErrorKind::unsupported,
         "{}: Megatron-LM writes no distrib_optim.pt in a run with {}; without {} its state is "
         "written as such a run has it",
         option("optimizer", "legacy"), matrices.name, option("optimizer"));
  }
  const bool distributed = options.optimizer == ReshardOptimizer::fully_reshardable ||
                           options.optimizer == ReshardOptimizer::dp_reshardable;
  if (distributed && !matrices.layer_wise) {
    fail(ErrorKind::unsupported,
         "{}: it is for distributed optimizers, which a run with {} has only with "
         "--use-layer-wise-distributed-optimizer; without {} its state is written a tensor a "
         "parameter, as such a run has it",
         option("optimizer", options.optimizer == ReshardOptimizer::dp_reshardable
                                 ? "dp_reshardable"
                                 : "fully_reshardable"),
         matrices.name, option("optimizer"));
  }
  if (options.to == ReshardFormat::fsdp_dtensor) {
    fail(ErrorKind::unsupported,
         "Megatron-LM refuses the optimizer {} with Megatron-FSDP: its state cannot be written as "
         "fsdp_dtensor; {} writes the model without it",
         matrices.name, option("optimizer", "none"));
  }
  if (matrices.layer_wise && options.to == ReshardFormat::torch) {
    state.warnings.push_back(
        "the optimizer's state is written as layer_wise_optimizer_*.pt: today's Megatron-LM loads "
        "them with --no-use-layer-wise-param-layout alone");
  }
}

}  // namespace ferry
