// The memory regions of a rank that are in checkpoints.
#include <utility>

#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "trainer/optimizer/model_state.h"

namespace ferry {

using kernels::Array;
using kernels::Type;

namespace {

DType dtype_of(Type type) {
  return type == Type::f32 ? DType::f32 : type == Type::bf16 ? DType::bf16 : DType::f16;
}

}  // namespace

std::vector<Region> ModelState::model_regions() const {
  std::vector<Region> regions;
  for (const Held& held : held_) {
    auto* data = static_cast<std::byte*>(held.value.data);
    for (const Shard& shard : held.parameter.shards) {
      const ModelTensor& tensor = layout_.tensors()[shard.tensor];
      regions.push_back({tensor.name, tensor.dtype, tensor.shape, shard, data});
      data += shard.elements(tensor.name) * size_bytes(tensor.dtype);
    }
  }
  return regions;
}

Region ModelState::region_of(const StateRun& run, std::string name, const Array& data) const {
  const Shard& shard = run.shard.shard;
  return {std::move(name), dtype_of(data.type), layout_.tensors()[shard.tensor].shape, shard,
          static_cast<std::byte*>(data.data)};
}

// Named `name`: the fp32 master weights, or both halves of them.
void ModelState::add_masters(const StateRun& run, const std::string& name,
                             std::vector<Region>& regions) const {
  if (run.remainder == nullptr) {
    regions.push_back(region_of(run, name, Array(run.master)));
    return;
  }
  regions.push_back(remainders_of(run, name));
  regions.push_back(region_of(run, name, run.value));
  regions.back().half = FloatHalf::upper;
}

Region ModelState::remainders_of(const StateRun& run, std::string name) const {
  Region region = region_of(run, std::move(name), Array(run.remainder, Type::bf16));
  region.dtype = DType::i16;
  region.half = FloatHalf::lower;
  return region;
}

void ModelState::add_states(const StateRun& run, std::vector<Region>& regions) const {
  for (size_t kind = 0; kind < options_.kinds.size(); ++kind) {
    const std::string name = optimizer_entry_name(options_.kinds[kind], run.name);
    regions.push_back(region_of(run, name, run.states[kind]));
  }
}

std::vector<Region> ModelState::optimizer_regions(Purpose purpose) const {
  std::vector<Region> regions;
  for (const StateRun& run : runs_) {
    const std::string name = optimizer_entry_name("param", run.name);
    if (run.remainder != nullptr && purpose == Purpose::save) {
      regions.push_back(remainders_of(run, name));
    } else if (run.value.type != Type::f32) {
      add_masters(run, name, regions);
    }
    add_states(run, regions);
  }
  return regions;
}

std::vector<Region> ModelState::main_weight_regions() const {
  std::vector<Region> regions;
  for (const StateRun& run : runs_) add_masters(run, run.name, regions);
  return regions;
}

}  // namespace ferry
