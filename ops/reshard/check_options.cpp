#include "ops/reshard/check_options.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

std::string_view word(ReshardFormat format) {
  switch (format) {
    case ReshardFormat::torch_dist:
      return name(Format::torch_dist);
    case ReshardFormat::torch:
      return name(Format::megatron_torch);
    case ReshardFormat::fsdp_dtensor:
      return name(Format::fsdp_dtensor);
    case ReshardFormat::dcp:
      return name(Format::dcp);
  }
  return "";
}

}  // namespace

void check_options(const ReshardOptions& options) {
  const auto refuse = [&](const OptionName& refused, const std::string& why) {
    fail(ErrorKind::invalid, "{} cannot be used with {}{}", refused, option("to", word(options.to)),
         why);
  };
  const auto refuse_optimizer = [&](const std::string& why) {
    fail(ErrorKind::invalid, "this {} cannot be used with {}: {}", option("optimizer"),
         option("to", word(options.to)), why);
  };
  const bool per_parameter = options.optimizer == ReshardOptimizer::fully_reshardable;
  const bool flat = options.optimizer == ReshardOptimizer::dp_reshardable;
  const bool legacy = options.optimizer == ReshardOptimizer::legacy;
  if (options.repair_masters && options.optimizer == ReshardOptimizer::none) {
    fail(ErrorKind::invalid, "{} cannot be used with {}", option("repair_masters"),
         option("optimizer", "none"));
  }
  if (options.masters == MasterForm::remainders &&
      !(flat && options.to == ReshardFormat::torch_dist)) {
    fail(ErrorKind::invalid, "{} is for {}: Megatron-LM loads them from nothing else",
         option("masters", "remainders"), option("optimizer", "dp_reshardable"));
  }
  switch (options.to) {
    case ReshardFormat::torch_dist:
      if (legacy) {
        refuse(option("optimizer", "legacy"), fmt::format(": that is {}", option("to", "torch")));
      }
      return;
    case ReshardFormat::torch:
      if (options.write.zstd_level) {
        refuse(option("zstd_level"), ": PyTorch reads such files as they are");
      }
      if (per_parameter || flat) {
        refuse_optimizer(fmt::format("distrib_optim.pt is {}", option("optimizer", "legacy")));
      }
      break;
    case ReshardFormat::fsdp_dtensor:
    case ReshardFormat::dcp:
      if (flat || legacy) {
        refuse_optimizer("optimizer state is stored per parameter there");
      }
      break;
  }
  if (options.write.release != kNewestCore) refuse(option("release"), "");
}

void check_plain(const ReshardOptions& options, const Checkpoint& checkpoint) {
  ParallelTarget ranks;
  ranks.data = options.layout.data;
  const bool has_layout = !(options.layout == ranks) || options.vocabulary_divisor ||
                          options.transformer_engine || options.model != ModelClass::as_source;
  if (!has_layout && options.optimizer == ReshardOptimizer::as_source) return;
  fail(ErrorKind::invalid,
       "{} is not a run of Megatron-LM's: it is copied as it is, without {}; of the layout options "
       "only {} applies, the number of ranks to write files for",
       checkpoint.path, has_layout ? "a layout or padding" : fmt::format("{}", option("optimizer")),
       option("data"));
}

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
