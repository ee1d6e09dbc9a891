#include "trainer/language/memory_plan.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>

#include "kernels/planning.h"
#include "trainer/arguments/complete.h"
#include "trainer/checkpoint/staging_memory.h"
#include "trainer/communicator/planning_communicator.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/flops.h"

namespace ferry {

namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

// A rank with its own GPU.
int64_t sum_bytes(Grid& grid) {
  const bool has_aside =
      grid.data_and_context_aside().size() > 1 || grid.expert_data_aside().size() > 1;
  return (grid.world().size() > 1 ? kGpuSumBytes : 0) + (has_aside ? kGpuSumBytes : 0);
}

}  // namespace

std::vector<StagePlan> memory_plan(const TrainArguments& arguments, const RunModel& model,
                                   kernels::DeviceKind kind, const std::string& path,
                                   bool has_grouped_float8) {
  const GridSizes sizes(model.run());
  const BatchSizes batches = batch_sizes(arguments);
  const int64_t micro_batches = batch_at(batches, batches.steps.back().from_samples).micro_batches;
  std::vector<StagePlan> plan;
  for (int64_t stage = 0; stage < sizes.pipeline; ++stage) {
    GridPlace place;
    place.stage = stage;
    const auto own = static_cast<int>(sizes.rank_of(place));
    RankDevice device;
    device.kernels = std::make_unique<kernels::PlanningKernels>(kind, has_grouped_float8);
    device.make_communicator = [own](int, const std::vector<int>& members) {
      const auto at = std::find(members.begin(), members.end(), own) - members.begin();
      return std::make_unique<PlanningCommunicator>(static_cast<int>(at),
                                                    static_cast<int>(members.size()));
    };
    RankModel rank(arguments, model, own, device, path);
    const ModelState::Bytes state = rank.memory.bytes();
    const int64_t folders = arguments.non_persistent_save_interval ? 2 : 1;
    const bool is_on_device = kind == kernels::DeviceKind::gpu;
    const bool stages = (arguments.async_save || is_on_device) && !arguments.save.empty();
    const int64_t copies = stages ? folders * (state.parameters + state.optimizer) : 0;
    const uint64_t most = staging_bytes(arguments).value_or(INT64_MAX);
    const Pipeline::Plan passes = rank.pipeline.plan(micro_batches);
    const int64_t attention =
        has_fused_attention(arguments) ? passes.fused_attention_bytes : passes.attention_bytes;
    plan.push_back({stage, rank.memory.parameter_count(), state,
                    passes.activation_bytes + (is_on_device ? attention + sum_bytes(rank.grid) : 0),
                    static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(copies), most)),
                    rank.float8 ? rank.float8->bytes() : 0, copies, is_on_device});
  }
  return plan;
}

std::string plan_text(const TrainArguments& arguments, const RunModel& model,
                      const std::vector<StagePlan>& plan) {
  int64_t parameters = 0;
  for (const ModelTensor& tensor : model.layout.tensors()) {
    parameters += element_count(tensor.shape, tensor.name);
  }
  const double operations = floating_point_operations(arguments, 1) /
                            static_cast<double>(arguments.seq_length.value_or(1));
  std::string text = fmt::format(
      "model: {} parameters, {:.3e} floating-point operations per token\nmemory per rank (GiB), by "
      "pipeline stage:\n  stage   parameters held   parameters    gradients    optimizer  "
      "activations      staging        total\n",
      parameters, operations);
  for (const StagePlan& stage : plan) {
    text += fmt::format(
        "  {:5}   {:15}   {:10.3f}   {:10.3f}   {:10.3f}   {:10.3f}   {:10.3f}   {:10.3f}\n",
        stage.stage, stage.parameter_count, gib(stage.parameter_bytes()),
        gib(stage.state.gradients), gib(stage.state.optimizer), gib(stage.activations),
        gib(stage.staging), gib(stage.bytes()));
  }
  return text;
}

std::string staging_plan_text(const std::vector<StagePlan>& plan, int64_t ranks,
                              uint64_t available) {
  const auto ranks_of_stage = static_cast<double>(ranks) / static_cast<double>(plan.size());
  double needed = 0, held = 0;
  int64_t copies = 0, staging = INT64_MAX;
  for (const StagePlan& stage : plan) {
    needed += static_cast<double>(stage.staging) * ranks_of_stage;
    if (!stage.is_on_device) held += static_cast<double>(stage.held_bytes()) * ranks_of_stage;
    copies = std::max(copies, stage.copies);
    if (stage.staging < stage.copies) staging = std::min(staging, stage.staging);
  }
  if (copies == 0) return {};
  const char* const pieces =
      "saves go in pieces, and a step waits until the last piece is copied\n";
  std::string text =
      fmt::format("staging: saves take up to {:.3f} GiB of host memory per rank{}\n", gib(copies),
                  plan[0].is_on_device ? " in addition to the device's" : "");
  if (staging < INT64_MAX) {
    text += fmt::format("staging: --staging-memory allows {:.3f} GiB: {}", gib(staging), pieces);
  }
  const double room = std::max(0.0, static_cast<double>(for_staging(available)) - held);
  if (needed > room) {
    constexpr double kGiB = 1 << 30;
    text += fmt::format(
        "staging: this host has {:.3f} GiB of the {:.3f} GiB that {} ranks on it need: {}",
        room / kGiB, needed / kGiB, ranks, pieces);
  }
  return text;
}

void check_machine_memory(const std::vector<StagePlan>& plan, int64_t ranks) {
  struct sysinfo machine {};
  if (::sysinfo(&machine) != 0) return;
  const double held = static_cast<double>(machine.totalram + machine.totalswap) * machine.mem_unit;
  double all = 0;
  for (const StagePlan& stage : plan) {
    all += static_cast<double>(stage.held_bytes()) * static_cast<double>(ranks) /
           static_cast<double>(plan.size());
  }
  if (all <= held) return;
  constexpr double kGiB = 1 << 30;
  fail(ErrorKind::exhausted,
       "the ranks of this process ({}) need {:.1f} GiB of memory, and this machine has {:.1f} GiB: "
       "reduce it with --bf16, --use-distributed-optimizer, --recompute-granularity full or a "
       "smaller --micro-batch-size, or spread ranks over machines with mpirun (--dry-run shows the "
       "memory of a rank)",
       ranks, all / kGiB, held / kGiB);
}

}  // namespace ferry
