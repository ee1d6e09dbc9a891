#include "trainer/parallel/grid.h"

#include <functional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

GridSizes::GridSizes(const RunArguments& run)
    : world(run.world_size),
      pipeline(run.pipeline),
      context(run.context),
      tensor(run.tensor),
      expert(run.expert),
      expert_tensor(run.expert_tensor) {
  const int64_t model = pipeline * context * tensor;
  if (world % model != 0) {
    fail(ErrorKind::mismatch,
         "{} ranks cannot be tensor {} x context {} x pipeline {} ranks; give a multiple of {}",
         world, tensor, context, pipeline, model);
  }
  data = world / model;
  const int64_t stage = world / pipeline;
  if (stage % (expert * expert_tensor) != 0) {
    fail(
        ErrorKind::mismatch,
        "the {} ranks of a pipeline stage (tensor {} x context {} x data {}) cannot be expert {} x "
        "expert tensor {} ranks; choose data-parallel ranks so that {} divides them",
        stage, tensor, context, data, expert, expert_tensor, expert * expert_tensor);
  }
  expert_data = stage / (expert * expert_tensor);
  if (run.stages_before_data && pipeline > 1) {
    fail(ErrorKind::unsupported,
         "--use-tp-pp-dp-mapping is not supported: ranks are ordered tp-cp-ep-dp-pp");
  }
}

GridPlace GridSizes::place_of(int64_t rank) const {
  GridPlace place;
  const int64_t stage_ranks = world / pipeline, in_stage = rank % stage_ranks;
  place.stage = rank / stage_ranks;
  place.tensor = in_stage % tensor;
  place.context = in_stage / tensor % context;
  place.data = in_stage / (tensor * context);
  place.expert_tensor = in_stage % expert_tensor;
  place.expert = in_stage / expert_tensor % expert;
  place.expert_data = in_stage / (expert_tensor * expert);
  return place;
}

int64_t GridSizes::rank_of(const GridPlace& place) const {
  return place.tensor + tensor * (place.context + context * (place.data + data * place.stage));
}

Grid::Grid(const GridSizes& sizes, int own_rank, const MakeCommunicator& make_communicator)
    : sizes_(sizes), place_(sizes.place_of(own_rank)) {
  int channel = 0;
  // The ranks with the same `key` as this rank.
  using Key = std::vector<int64_t>;
  const auto make = [&](const std::function<Key(const GridPlace&)>& key) {
    std::vector<int> members;
    for (int rank = 0; rank < sizes_.world; ++rank) {
      if (key(sizes_.place_of(rank)) == key(place_)) members.push_back(rank);
    }
    return make_communicator(channel++, std::move(members));
  };
  using P = GridPlace;
  world_ = make([](const P&) { return Key{}; });
  stage_ = make([](const P& p) { return Key{p.stage}; });
  tensor_ = make([](const P& p) { return Key{p.stage, p.data, p.context}; });
  context_ = make([](const P& p) { return Key{p.stage, p.data, p.tensor}; });
  tensor_and_context_ = make([](const P& p) { return Key{p.stage, p.data}; });
  const auto dense = [](const P& p) { return Key{p.stage, p.tensor}; };
  const auto same_experts = [](const P& p) { return Key{p.stage, p.expert, p.expert_tensor}; };
  data_and_context_ = make(dense);
  data_and_context_aside_ = make(dense);
  data_ = make([](const P& p) { return Key{p.stage, p.tensor, p.context}; });
  experts_ = make([](const P& p) { return Key{p.stage, p.expert_data}; });
  expert_data_ = make(same_experts);
  expert_data_aside_ = make(same_experts);
  forward_pipeline_ = make([](const P& p) { return Key{p.data, p.context, p.tensor}; });
  backward_pipeline_ = make([](const P& p) { return Key{p.data, p.context, p.tensor}; });
  const int64_t last = sizes_.pipeline - 1;
  embedding_ = make([&](const P& p) {
    const bool is_end = p.stage == 0 || p.stage == last;
    return Key{is_end ? -1 : p.stage, p.data, p.context, p.tensor};
  });
  data_and_context_aside_->set_aside();
  expert_data_aside_->set_aside();
  context_->connect(1);
  forward_pipeline_->connect(1);
  backward_pipeline_->connect(-1);
}

}  // namespace ferry
