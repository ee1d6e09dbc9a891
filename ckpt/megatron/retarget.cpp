#include "ckpt/megatron/retarget.h"

#include <algorithm>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/param_groups.h"
#include "ckpt/megatron/state/vocabulary.h"

namespace ferry {
namespace {

constexpr std::string_view kRerunMember = "rerun_state_machine";
constexpr std::string_view kRerunObjects = "rerun_state_machine_state/";

// Megatron-LM asks for it when world size, tensor, pipeline and data ranks are the same.
bool same_ranks(const RunArguments& a, const RunArguments& b) {
  return a.world_size == b.world_size && a.tensor == b.tensor && a.pipeline == b.pipeline &&
         a.context == b.context;
}

void drop_rerun_state(RunState& state, bool same) {
  const auto is_rerun = [](const KeptObject& object) {
    return object.name.starts_with(kRerunObjects);
  };
  if (same && std::any_of(state.objects.begin(), state.objects.end(), is_rerun)) return;
  std::erase_if(state.objects, is_rerun);
  std::erase_if(state.common, [](const auto& member) { return member.first == kRerunMember; });
}

// Alternating rows of gate and up are stored as the ranks that saved them had them.
void check_alternating_rows(const RunArguments& before, const RunArguments& after) {
  const struct {
    int64_t block, before, after;
    std::string_view setting, option;
  } kinds[] = {
      {before.glu_blocks.experts, before.expert_tensor, after.expert_tensor,
       "moe_mlp_glu_interleave_size", "expert_tensor"},
      {before.glu_blocks.shared, before.tensor, after.tensor,
       "moe_shared_expert_glu_interleave_size", "tensor"},
      {before.glu_blocks.dense, before.tensor, after.tensor, "use_grouped_gemm_for_dense_mlp",
       "tensor"},
  };
  for (const auto& kind : kinds) {
    if (kind.block == 0 || kind.before == kind.after) continue;
    fail(
        ErrorKind::unsupported,
        "on each tensor rank gate and up alternate in blocks of {} rows ({}), and a checkpoint has "
        "them in the order of the {} ranks that saved it: {} ranks would take rows of one for "
        "rows of the other; keep {}",
        kind.block, kind.setting, kind.before, kind.after,
        option(kind.option, fmt::to_string(kind.before)));
  }
}

bool has_expert_biases(const RunState& state) {
  return std::any_of(state.tensors.begin(), state.tensors.end(), [](const StateTensor& tensor) {
    return tensor.role == Role::model && tensor.name.ends_with(".bias") &&
           tensor.name.find(".mlp.experts.") != std::string::npos;
  });
}

}  // namespace

void retarget(RunState& state, const ParallelTarget& target, std::optional<int64_t> divisor) {
  const RunArguments before = state.args.run;
  state.args = apply_target(state.args, target);
  const RunArguments& after = state.args.run;
  check_alternating_rows(before, after);
  pad_vocabulary(state, before, divisor);
  drop_rerun_state(state, same_ranks(before, after));
  const MatrixOptimizer& matrices = before.matrices;
  state.param_groups =
      matrices.any ? adapt_groups_of_matrices(state.param_groups, experts_are_separate(after),
                                              matrices.layer_wise)
                   : adapt_param_groups(state.param_groups, experts_are_separate(after),
                                        has_expert_biases(state));
  if (!state.rng.empty() && usable_rng(state).empty()) {
    state.warnings.push_back(fmt::format(
        "the random number states are for other ranks than {} pipeline stages x {} tensor ranks: "
        "they are kept, but Megatron-LM will start its streams anew from --seed, as it does when "
        "it loads at another layout",
        after.pipeline, after.tensor));
  }
}

}  // namespace ferry
