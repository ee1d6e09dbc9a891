#include "ckpt/megatron/optimizer/optimizer_entries.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
std::vector<Chunk>& OptimizerEntries::chunks(std::string_view name, DType dtype, uint32_t tensor) {
  if (name == "fp32_param") name = "param";
  auto at = std::ranges::find(states_, name, &State::name);
  if (at == states_.end()) {
    states_.push_back({std::string(name), std::vector<DType>(tensors_->size()), {}});
    at = states_.end() - 1;
    at->chunks.resize(tensors_->size());
  }
  std::vector<Chunk>& chunks = at->chunks[tensor];
  if (chunks.empty()) at->dtypes[tensor] = dtype;
  if (at->dtypes[tensor] != dtype) {
    fail(ErrorKind::mismatch, "optimizer state {} of {} is stored as {} and as {}", name,
         (*tensors_)[tensor].name, torch_name(at->dtypes[tensor]), torch_name(dtype));
  }
  return chunks;
}

void OptimizerEntries::add(std::string_view name, DType dtype, uint32_t tensor, const Box& box,
                           int64_t begin, int64_t count, const Extent& extent, bool shared) {
  Chunk chunk{{box, 0, 0, begin, count}, {}, extent};
  if (!shared && begin == 0 && count == element_count(box.size, (*tensors_)[tensor].name)) {
    chunk.run_count = -1;
  }
  chunks(name, dtype, tensor).push_back(std::move(chunk));
}

void OptimizerEntries::add(std::string_view name, DType dtype, const LocalParameter& parameter,
                           int64_t begin, int64_t count, const Extent& extent) {
  int64_t shard_begin = 0;
  for (const Shard& shard : parameter.shards) {
    const int64_t elements = element_count(shard.box.size, "part of a model tensor");
    const int64_t from = std::max(begin, shard_begin);
    const int64_t to = std::min(begin + count, shard_begin + elements);
    if (from < to) {
      Extent part = extent;
      part.payload_offset += static_cast<uint64_t>(from - begin) * size_bytes(dtype);
      add(name, dtype, shard.tensor, shard.box, from - shard_begin, to - from, part,
          to - from < count);
    }
    shard_begin += elements;
  }
}

void OptimizerEntries::add(std::string_view name, DType dtype, uint32_t tensor, Chunk chunk) {
  chunks(name, dtype, tensor).push_back(std::move(chunk));
}

std::vector<Entry> OptimizerEntries::take() {
  std::stable_sort(states_.begin(), states_.end(), [](const State& a, const State& b) {
    return usual_rank(a.name) < usual_rank(b.name);
  });
  std::vector<Entry> entries;
  for (size_t i = 0; i < tensors_->size(); ++i) {
    const ModelTensor& tensor = (*tensors_)[i];
    for (State& state : states_) {
      if (state.chunks[i].empty()) continue;
      Entry entry{optimizer_entry_name(state.name, tensor.name), state.dtypes[i], tensor.shape,
                  std::move(state.chunks[i]), Role::optimizer};
      int64_t stored = 0;
      for (const Chunk& chunk : entry.chunks) {
        stored += chunk.elements(entry.name);
      }
      if (stored != entry.elements()) {
        fail(ErrorKind::mismatch, "{}: the ranks hold {} of {} elements", entry.name, stored,
             entry.elements());
      }
      entries.push_back(std::move(entry));
    }
  }
  states_.clear();
  return entries;
}

}  // namespace ferry
