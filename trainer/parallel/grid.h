// A rank's coordinates among all ranks of a run, and its communicators.
//
// Source: megatron/core/parallel_state.py (the order tp-cp-ep-dp-pp).
#pragma once

#include <cstdint>
#include <memory>

#include "ckpt/megatron/model/model_layout.h"
#include "trainer/communicator/communicator.h"

namespace ferry {

/// One rank's coordinates. Routed experts have their own distribution over the ranks of a pipeline
/// stage.
struct GridPlace {
  int64_t stage = 0, data = 0, context = 0, tensor = 0;
  int64_t expert_data = 0, expert = 0, expert_tensor = 0;

  RankCoordinates chunk(int64_t chunk) const {
    return {tensor, expert_tensor, expert, stage, chunk};
  }
};

struct GridSizes {
  int64_t world = 1;
  int64_t pipeline = 1, data = 1, context = 1, tensor = 1;
  int64_t expert_data = 1, expert = 1, expert_tensor = 1;

  /// mismatch, naming the numbers, if the sizes do not multiply to the world size.
  explicit GridSizes(const RunArguments& run);

  GridPlace place_of(int64_t rank) const;
  int64_t rank_of(const GridPlace& place) const;  // from the dense coordinates
};

/// The communicators of one rank. All ranks construct it.
class Grid {
 public:
  Grid(const GridSizes& sizes, int rank, const MakeCommunicator& make_communicator);

  const GridSizes& sizes() const noexcept { return sizes_; }
  const GridPlace& place() const noexcept { return place_; }

  Communicator& world() { return *world_; }
  Communicator& stage() { return *stage_; }  // all ranks of this pipeline stage
  Communicator& tensor() { return *tensor_; }
  Communicator& context() { return *context_; }
  Communicator& tensor_and_context() { return *tensor_and_context_; }
  Communicator& data_and_context() { return *data_and_context_; }  // hold the same dense parameters
  Communicator& data_and_context_aside() {
    return *data_and_context_aside_;
  }  // concurrent with all others
  Communicator& data() { return *data_; }
  /// The ranks that together hold all routed experts: by expert rank, then expert-tensor rank.
  Communicator& experts() { return *experts_; }
  Communicator& expert_data() { return *expert_data_; }  // hold the same experts
  Communicator& expert_data_aside() { return *expert_data_aside_; }
  // The ranks of a pipeline by stage, a communicator for each direction.
  Communicator& forward_pipeline() { return *forward_pipeline_; }
  Communicator& backward_pipeline() { return *backward_pipeline_; }
  /// The first and the last stage; on other stages, only this rank.
  Communicator& embedding() { return *embedding_; }

 private:
  GridSizes sizes_;
  GridPlace place_;
  std::unique_ptr<Communicator> world_, stage_, tensor_, context_, tensor_and_context_,
      data_and_context_, data_and_context_aside_, data_, experts_, expert_data_, expert_data_aside_,
      forward_pipeline_, backward_pipeline_, embedding_;
};

}  // namespace ferry
