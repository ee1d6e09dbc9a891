#include "ckpt/megatron/rank_folders/write/rng.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>

namespace ferry {
namespace {

constexpr int64_t kStageStride = 100, kExpertStride = 100;
constexpr int64_t kTensorSeed = 2718, kExpertSeed = 1024;

bool is_of_grid(const RngState& rng, const RunArguments& run) {
  return rng.stages == run.pipeline && rng.tensor_ranks == run.tensor;
}

const RngState* find(const RunState& state, const RunArguments& run, const RankCoordinates& rank) {
  const auto at = std::ranges::find_if(state.rng, [&](const RngState& rng) {
    return is_of_grid(rng, run) && rng.stage == rank.stage && rng.tensor == rank.tensor;
  });
  return at == state.rng.end() ? nullptr : &*at;
}

// The state of the source that is nearest to `rank`, of the first grid that there is.
const RngState& nearest(const RunState& state, const RankCoordinates& rank) {
  const auto distance = [&](const RngState& rng) {
    const bool other_grid = rng.stages != state.rng.front().stages ||
                            rng.tensor_ranks != state.rng.front().tensor_ranks;
    return std::tuple(other_grid, std::abs(rng.stage - rank.stage),
                      std::abs(rng.tensor - rank.tensor));
  };
  return *std::ranges::min_element(state.rng, {}, distance);
}

// A CUDA generator's state: its seed, then how far its stream has been used, 8 bytes each.
struct CudaState {
  int64_t seed = 0;
  std::string rest;

  static std::optional<CudaState> read(const Value& value) {
    const StoredTensor* stored = value.tensor();
    if (!stored || stored->dtype != DType::u8 || stored->shape != Dims{16}) return std::nullopt;
    const auto& storages = value.document()->storages;
    const auto at = storages.find(stored->storage_key);
    const auto offset = static_cast<uint64_t>(stored->storage_offset);
    if (at == storages.end() || at->second.size() < 16 || offset > at->second.size() - 16) {
      return std::nullopt;
    }
    CudaState state;
    std::memcpy(&state.seed, at->second.data() + offset, 8);
    state.rest = at->second.substr(offset + 8, 8);
    return state;
  }

  Value write(Draft& draft) const {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &seed, 8);
    return draft.tensor(DType::u8, Dims{16}, bytes + rest);
  }
};

// Gives `copy`, made of one data rank's state `original`, the seeds of another rank. Left as it is
// where the seeds are not Megatron-LM's.
void reseed(Draft& draft, const Value& original, const Value& copy, const RngState& from,
            const RankCoordinates& rank) {
  const Value trackers = original.get("rng_tracker_states");
  const auto data = CudaState::read(trackers.get("data-parallel-rng"));
  const auto tensor = CudaState::read(trackers.get("model-parallel-rng"));
  if (!data || !tensor || tensor->seed != data->seed + kTensorSeed + from.tensor) return;
  const auto put = [&](const Value& dict, std::string_view name, const Value& old, int64_t seed) {
    auto state = CudaState::read(old.get(name));
    if (!state) return;
    state->seed = seed;
    draft.put(dict, name, state->write(draft));
  };
  const int64_t stages = kStageStride * (rank.stage - from.stage);
  const int64_t base = data->seed + stages;
  const Value copied = copy.get("rng_tracker_states");
  put(copied, "data-parallel-rng", trackers, base);
  put(copied, "model-parallel-rng", trackers, base + kTensorSeed + rank.tensor);
  put(copied, "expert-parallel-rng", trackers,
      base + kExpertSeed + kExpertStride * rank.expert + rank.expert_tensor);
  if (const auto own = CudaState::read(original.get("cuda_rng_state"))) {
    put(copy, "cuda_rng_state", original, own->seed + stages);
  }
}

}  // namespace

Value rng_of_rank(Draft& draft, const RunState& state, const RunArguments& run,
                  const RankCoordinates& rank) {
  if (state.rng.empty()) return draft.none();
  if (const RngState* own = find(state, run, rank)) return draft.copy(own->value.value);
  const RngState& from = nearest(state, rank);
  const Value copy = draft.copy(from.value.value);
  for (size_t i = 0; i < copy.size(); ++i) {
    reseed(draft, from.value.value[i], copy[i], from, rank);
  }
  return copy;
}

bool has_rng_of_grid(const RunState& state, const RunArguments& run) {
  return std::ranges::any_of(state.rng, [&](const RngState& rng) { return is_of_grid(rng, run); });
}

}  // namespace ferry
