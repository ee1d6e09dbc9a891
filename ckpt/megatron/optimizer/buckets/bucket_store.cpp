#include "ckpt/megatron/optimizer/buckets/bucket_store.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"

namespace ferry {
namespace {

BucketState read_state(const Entry& entry, std::string_view name) {
  BucketState state{std::string(name), &entry, {}};
  if (entry.shape.size() != 1) {
    fail(ErrorKind::unsupported, "{} has shape {}; only one-dimensional buckets can be read",
         entry.name, to_string(entry.shape));
  }
  for (const Chunk& chunk : entry.chunks) {
    if (chunk.is_run() || chunk.box.size.size() != 1) {
      fail(ErrorKind::corrupt, "{}: chunk {} is not a range of a bucket", entry.name,
           to_string(chunk.box));
    }
    if (chunk.box.size[0] > 0) state.chunks.push_back(&chunk);
  }
  std::sort(state.chunks.begin(), state.chunks.end(),
            [](const Chunk* a, const Chunk* b) { return a->box.offset[0] < b->box.offset[0]; });
  int64_t next = 0;
  for (const Chunk* chunk : state.chunks) {
    if (chunk->box.offset[0] != next || chunk->box.size[0] > entry.shape[0] - next) {
      fail(ErrorKind::corrupt, "{}: its chunks leave a gap or overlap at element {}", entry.name,
           next);
    }
    next += chunk->box.size[0];
  }
  if (next != entry.shape[0]) {
    fail(ErrorKind::corrupt, "{}: its chunks end at element {} of {}", entry.name, next,
         entry.shape[0]);
  }
  return state;
}

}  // namespace

BucketStore::BucketStore(const Catalog& catalog) {
  std::map<BufferKey, std::map<int64_t, StoredBucket>> found;
  for (const Entry& entry : catalog.entries) {
    const auto name = parse_bucket_name(entry.name);
    if (!name) continue;
    buffers_[name->key].parameter_dtype = name->parameters;
    found[name->key][name->bucket].states.push_back(read_state(entry, name->state));
  }
  for (auto& [key, buckets] : found) {
    StoredBuffer& buffer = buffers_[key];
    for (auto& [number, bucket] : buckets) {
      if (number != static_cast<int64_t>(buffer.buckets.size())) {
        fail(ErrorKind::corrupt, "{}: bucket {} is missing", to_string(key), buffer.buckets.size());
      }
      buffer.buckets.push_back(std::move(bucket));
    }
  }
  read_padded_sizes(catalog);
}

// [[{(dtype, dtype): [elements of bucket 0, ...]}, ... one dict a buffer]]
void BucketStore::read_padded_sizes(const Catalog& catalog) {
  constexpr int kMostObjects = 32;  // a read each
  int objects = 0;
  for (const Object& object : catalog.objects) {
    auto group = parse_group_object(object.name, "per_bucket_numel");
    if (!group || ++objects > kMostObjects) continue;
    BufferKey& key = *group;
    const LoadedValue loaded = read_object(catalog, object);
    const Value buffers = loaded.value[0];
    for (; key.buffer < static_cast<int64_t>(buffers.size()); ++key.buffer) {
      const auto at = buffers_.find(key);
      const Value sizes = buffers[key.buffer].pair_value(0);
      if (at == buffers_.end() || sizes.size() != at->second.buckets.size()) {
        fail(ErrorKind::corrupt,
             "object {} lists {} buckets of {}, which the checkpoint does not have", object.name,
             sizes.size(), to_string(key));
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        at->second.buckets[i].padded = sizes[i].integer();
      }
    }
  }
}

const StoredBuffer* BucketStore::find(const BufferKey& key) const {
  const auto at = buffers_.find(key);
  return at == buffers_.end() ? nullptr : &at->second;
}

bool BucketStore::has_optimizer(int64_t chained) const {
  const auto at = buffers_.lower_bound({chained, 0, 0});
  return at != buffers_.end() && at->first.chained == chained;
}

}  // namespace ferry
