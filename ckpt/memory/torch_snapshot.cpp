#include "ckpt/memory/torch_snapshot.h"

#include <unordered_map>
#include <utility>

#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "ckpt/memory/snapshot_format.h"

namespace ferry {
namespace {

// As the state says, where the memory has it otherwise: floating-point numbers of another type are
// converted, of fp32 ones the lower halves are taken.
void set_dtype(StateTensor& tensor, DType dtype) {
  tensor.dtype = dtype;
  if (dtype == DType::i16) tensor.recipe.half = FloatHalf::lower;
}

class TorchDistFormat final : public OwnFilesFormat {
 public:
  TorchDistFormat(RunState state, TorchDistOptions options)
      : state_(std::move(state)), options_(std::move(options)) {
    state_.source = {};
    state_.dropped.clear();
    for (StateTensor& tensor : state_.tensors) {
      tensor.recipe = {};
      set_dtype(tensor, tensor.dtype);
      dtypes_.emplace(tensor.name, tensor.dtype);
    }
    options_.zstd = false;  // bytes go straight from memory to their places
  }

  PlacedState place(OwnState own) const override {
    RunState state = state_;
    state.source = std::move(own.source);
    state.iteration = own.iteration;
    std::unordered_map<std::string_view, StateTensor*> described;
    if (options_.optimizer != ShardedOptimizer::dp_reshardable) state.tensors.clear();
    for (StateTensor& tensor : state.tensors) described.emplace(tensor.name, &tensor);
    HeldShards held;
    std::vector<StateTensor> others;
    for (PlacedTensor& placed : own.placed.tensors) {
      held[placed.tensor.name] = std::move(placed.shards);
      const auto dtype = dtypes_.find(placed.tensor.name);
      if (dtype != dtypes_.end() && placed.tensor.role == Role::optimizer) {
        set_dtype(placed.tensor, dtype->second);
      }
      const auto known = described.find(placed.tensor.name);
      if (known != described.end()) {
        *known->second = std::move(placed.tensor);
      } else {
        others.push_back(std::move(placed.tensor));
      }
    }
    for (StateTensor& tensor : others) state.tensors.push_back(std::move(tensor));
    PlacedState placed = place_torch_dist_rank(std::move(state), held, own.rank, options_);
    for (PlacedObject& object : own.placed.objects) placed.objects.push_back(std::move(object));
    return placed;
  }

  SmallFiles complete(DcpContent&, int64_t iteration) const override {
    RunState state = state_;
    state.iteration = iteration;
    return torch_dist_small_files(std::move(state), options_);
  }

 private:
  RunState state_;
  std::unordered_map<std::string, DType> dtypes_;  // of state_'s tensors
  TorchDistOptions options_;
};

}  // namespace

std::shared_ptr<const SnapshotFormat> torch_dist_format(RunState state, TorchDistOptions options) {
  return std::make_shared<TorchDistFormat>(std::move(state), std::move(options));
}

}  // namespace ferry
