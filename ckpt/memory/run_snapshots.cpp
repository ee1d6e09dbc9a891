#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/megatron/torch_dist/common_state.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "ckpt/memory/run_state_memory.h"
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
    if (own.rank == 0) {  // of all modules, of which this rank may hold those of one stage alone
      std::ranges::move(missing_extra_states(state), std::back_inserter(state.objects));
    }
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

namespace {

class LegacyFormat final : public CommonFilesFormat {
 public:
  LegacyFormat(RunState state, bool optimizer) : state_(std::move(state)) {
    state_.source = {};
    state_.dropped.clear();
    options_.optimizer = optimizer;
    options_.by_ranks = true;
  }

  PlannedOutput plan(Catalog source, int64_t iteration) const override {
    RunState state = state_;
    state.iteration = iteration;
    std::unordered_map<std::string, uint32_t> held;
    for (uint32_t i = 0; i < source.entries.size(); ++i) held.emplace(source.entries[i].name, i);
    for (StateTensor& tensor : state.tensors) {
      const auto at = held.find(tensor.name);
      uint32_t position = static_cast<uint32_t>(source.entries.size());
      if (at == held.end()) {
        source.entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, tensor.role});
      } else {
        position = at->second;
        check_same(source.entries[position], tensor);
        held.erase(at);
      }
      tensor.recipe = {{position}, {copy_all(tensor.shape)}, {}};
    }
    if (!held.empty()) {
      fail(ErrorKind::invalid, "tensor {}: not in the state of the run", held.begin()->first);
    }
    state.source = std::move(source);
    return plan_legacy(state, options_);
  }

 private:
  static void check_same(const Entry& given, const StateTensor& tensor) {
    const bool is_state = tensor.role == Role::optimizer && can_convert(given.dtype, tensor.dtype);
    if ((given.dtype == tensor.dtype || is_state) && given.shape == tensor.shape) return;
    fail(ErrorKind::invalid, "tensor {} is given as {} {}, the state of the run has it as {} {}",
         tensor.name, torch_name(given.dtype), to_string(given.shape), torch_name(tensor.dtype),
         to_string(tensor.shape));
  }

  RunState state_;
  LegacyOptions options_;
};

}  // namespace

std::shared_ptr<const SnapshotFormat> legacy_format(RunState state, bool optimizer) {
  return std::make_shared<LegacyFormat>(std::move(state), optimizer);
}

std::shared_ptr<const SnapshotFormat> legacy_format(const Checkpoint& begun_with, bool optimizer) {
  return legacy_format(state_of(begun_with), optimizer);
}

std::shared_ptr<const SnapshotFormat> torch_dist_format(const Checkpoint& begun_with,
                                                        TorchDistOptions options) {
  return torch_dist_format(state_of(begun_with), options);
}

}  // namespace ferry
