#include "ckpt/memory/legacy_snapshot.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/memory/snapshot_format.h"

namespace ferry {
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

}  // namespace ferry
