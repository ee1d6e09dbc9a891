// The memory and work of a pipeline's passes.
#include <algorithm>

#include "ckpt/base/error.h"
#include "kernels/planning.h"
#include "trainer/communicator/planning_communicator.h"
#include "trainer/parallel/pipeline.h"

namespace ferry {

using kernels::Array;

// Measured by running the passes over kernels that do nothing.
Pipeline::Sizes Pipeline::measure(const ModelChunk& chunk) {
  // More than any micro-batch needs, and small enough for the address space of many ranks' threads.
  constexpr int64_t kMost = int64_t{1} << 38;
  kernels::PlanningKernels planning(kernels_.kind());
  Arena kept(planning, kMost), scratch(planning, kMost), transient(planning, kMost);
  const auto stand_in = [](const Communicator& ranks) {
    return PlanningCommunicator(ranks.rank(), ranks.size());
  };
  PlanningCommunicator tensor = stand_in(ranks_.tensor), context = stand_in(ranks_.context),
                       both = stand_in(ranks_.tensor_and_context),
                       experts = stand_in(ranks_.experts), stage = stand_in(ranks_.stage);
  ModelRanks ranks{tensor, context, both, experts, stage, ranks_.sequence_parallel};
  Pass pass{pass_values(), planning, ranks, kept, scratch, transient};
  const DeviceBatch batch(planning, options_.sequences, positions_, options_.predictions);
  const MicroBatch& micro_batch = batch.micro_batch();
  const Array boundary(planning.allocate(static_cast<size_t>(pass.own_rows() * hidden_ * 4)).get(),
                       options_.type);
  try {
    const ModelChunk::Saved saved = chunk.forward(pass, micro_batch, boundary, boundary);
    chunk.backward(pass, micro_batch, saved, boundary);
  } catch (const Error&) {
    if (std::max({kept.peak(), scratch.peak(), transient.peak()}) <= kMost) throw;
    fail(ErrorKind::exhausted,
         "a pass over {} sequences of {} tokens needs more than {} GiB of a rank's memory; use a "
         "smaller --micro-batch-size or --seq-length, or more tensor or context parallel ranks",
         options_.sequences, options_.length, kMost >> 30);
  }
  return {kept.peak(),
          scratch.peak(),
          transient.peak(),
          planning.attention_bytes(),
          planning.fused_attention_bytes(),
          planning.operations()};
}

Pipeline::Plan Pipeline::plan(int64_t micro_batches) {
  const auto chunks = static_cast<int64_t>(chunks_.size());
  const auto schedule =
      pipeline_schedule(grid_.sizes().pipeline, grid_.place().stage, chunks, micro_batches);
  Plan plan;
  int64_t scratch = 0, transient = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Sizes& sizes = sizes_[static_cast<size_t>(chunk)];
    plan.activation_bytes += most_in_flight(schedule, chunk) * sizes.kept;
    plan.operations += sizes.operations * static_cast<double>(micro_batches);
    scratch = std::max(scratch, sizes.scratch);
    transient = std::max(transient, sizes.transient);
    plan.attention_bytes = std::max(plan.attention_bytes, sizes.attention);
    plan.fused_attention_bytes = std::max(plan.fused_attention_bytes, sizes.fused_attention);
  }
  plan.activation_bytes += scratch + transient;
  return plan;
}

}  // namespace ferry
