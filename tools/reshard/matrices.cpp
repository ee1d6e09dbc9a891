#include "tools/reshard/matrices.h"

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry::tool {

void check_matrices(const ReshardOptions& options, bool remainders, RunState& state) {
  const MatrixOptimizer matrices = matrix_optimizer(state.args.value);
  if (!matrices.any || !has_optimizer(state) || options.optimizer == ReshardOptimizer::none) return;
  if (remainders) {
    fail(ErrorKind::unsupported,
         "--masters remainders: of a run with {} Megatron-LM keeps the masters of matrices in fp32 "
         "alone; --masters fp32",
         matrices.name);
  }
  if (options.optimizer == ReshardOptimizer::legacy) {
    fail(ErrorKind::unsupported,
         "--optimizer legacy: Megatron-LM writes no distrib_optim.pt in a run with {}; without "
         "--optimizer its state is written as such a run has it",
         matrices.name);
  }
  const bool distributed = options.optimizer == ReshardOptimizer::fully_reshardable ||
                           options.optimizer == ReshardOptimizer::dp_reshardable;
  if (distributed && !matrices.layer_wise) {
    fail(ErrorKind::unsupported,
         "--optimizer {}: it is for distributed optimizers, and a run with {} has one beside "
         "--use-layer-wise-distributed-optimizer alone; without --optimizer its state is written "
         "a tensor a parameter, as such a run has it",
         options.optimizer == ReshardOptimizer::dp_reshardable ? "dp_reshardable"
                                                               : "fully_reshardable",
         matrices.name);
  }
  if (options.to == ReshardFormat::fsdp_dtensor) {
    fail(ErrorKind::unsupported,
         "Megatron-LM refuses --optimizer {} with Megatron-FSDP: its state cannot be written as "
         "fsdp_dtensor; --optimizer none writes the model without it",
         matrices.name);
  }
  if (matrices.layer_wise && options.to == ReshardFormat::torch) {
    state.warnings.push_back(
        "the optimizer's state is written as layer_wise_optimizer_*.pt: today's Megatron-LM loads "
        "them with --no-use-layer-wise-param-layout alone");
  }
}

}  // namespace ferry::tool
