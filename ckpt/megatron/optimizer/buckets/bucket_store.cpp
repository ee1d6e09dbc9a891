#include "ckpt/megatron/optimizer/buckets/bucket_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"

namespace ferry {
namespace {

constexpr std::string_view kGroup = "optimizer.distributed.dp_group_idx_";

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

bool take_number(std::string_view& text, int64_t& number) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMost || text.starts_with('-')) return false;
  text.remove_prefix(end - text.data());
  return true;
}

bool take_group(std::string_view& text, BufferKey& key) {
  if (take(text, "chained_") && !(take_number(text, key.chained) && take(text, "."))) return false;
  return take(text, kGroup) && take_number(text, key.group) && take(text, ".");
}

std::string group_name(const BufferKey& key) {
  const std::string chained = key.chained < 0 ? "" : fmt::format("chained_{}.", key.chained);
  return fmt::format("{}{}{}.", chained, kGroup, key.group);
}

// "(torch.bfloat16, torch.float32)": the parameters' dtype, then the gradients'.
std::optional<DType> parameter_dtype(std::string_view dtypes) {
  take(dtypes, "(");
  if (!take(dtypes, "torch.")) return std::nullopt;
  const auto dtype = dtype_from_torch(dtypes.substr(0, dtypes.find_first_of(",)")));
  return dtype && is_floating_point(*dtype) ? dtype : std::nullopt;
}

}  // namespace

std::string to_string(const BufferKey& key) {
  return fmt::format("{}model-parallel group {}, buffer {}",
                     key.chained < 0 ? "" : fmt::format("optimizer {}, ", key.chained), key.group,
                     key.buffer);
}

std::optional<BucketName> parse_bucket_name(std::string_view text) {
  BucketName name;
  if (!take_group(text, name.key) || !take(text, "gbuf_idx_") ||
      !take_number(text, name.key.buffer) || !take(text, ".dtype_")) {
    return std::nullopt;
  }
  const size_t end = text.find(".bucket_idx_");
  if (end == std::string_view::npos) return std::nullopt;
  name.parameters = parameter_dtype(text.substr(0, end));
  text.remove_prefix(end);
  if (!take(text, ".bucket_idx_") || !take_number(text, name.bucket) || !take(text, ".") ||
      text.empty()) {
    return std::nullopt;
  }
  name.state = text;
  return name;
}

std::string bucket_name(const BufferKey& key, DType parameters, DType gradients, int64_t bucket,
                        std::string_view state) {
  return fmt::format("{}gbuf_idx_{}.dtype_(torch.{}, torch.{}).bucket_idx_{}.{}", group_name(key),
                     key.buffer, torch_name(parameters), torch_name(gradients), bucket, state);
}

std::string group_object_name(const BufferKey& key, std::string_view member) {
  return fmt::format("{}{}/shard_0_1", group_name(key), member);
}

std::optional<BufferKey> parse_group_object(std::string_view text, std::string_view member) {
  BufferKey key;
  if (!take_group(text, key) || !take(text, member) || !take(text, "/")) return std::nullopt;
  return key;
}

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
