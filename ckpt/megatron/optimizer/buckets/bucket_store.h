// The bucket entries of a checkpoint, sorted by the buffer they belong to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"

namespace ferry {

// Names under which flat optimizer buffers are stored.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable),
// optimizer.py (ChainedOptimizer.sharded_state_dict).

/// Which flat buffer: of optimizer `chained` (-1: the only one), model-parallel group, buffer.
struct BufferKey {
  int64_t chained = -1;
  int64_t group = 0;
  int64_t buffer = 0;
  auto operator<=>(const BufferKey&) const = default;
};

/// "optimizer 1, group 4, buffer 0", for messages.
std::string to_string(const BufferKey& key);

/// "[chained_K.]optimizer.distributed.dp_group_idx_G.gbuf_idx_B.dtype_(torch.bfloat16,
/// torch.float32).bucket_idx_N.exp_avg", where the dtypes are those of parameters and gradients.
struct BucketName {
  BufferKey key;
  std::optional<DType> parameters;  // none: quantised
  int64_t bucket = 0;
  std::string_view state;  // of the text that was parsed
};
std::optional<BucketName> parse_bucket_name(std::string_view text);
std::string bucket_name(const BufferKey& key, DType parameters, DType gradients, int64_t bucket,
                        std::string_view state);

/// "[chained_K.]optimizer.distributed.dp_group_idx_G.<member>/shard_0_1": an object that a group of
/// ranks stores; its key has no buffer.
std::string group_object_name(const BufferKey& key, std::string_view member);
/// The key, if `text` names such an object.
std::optional<BufferKey> parse_group_object(std::string_view text, std::string_view member);

/// One state (param, exp_avg, ...) of one bucket: its chunks by rising offset.
struct BucketState {
  std::string name;
  const Entry* entry = nullptr;
  std::vector<const Chunk*> chunks;
  int64_t elements() const { return entry->shape[0]; }
};

struct StoredBucket {
  std::vector<BucketState> states;
  std::optional<int64_t> padded;  // elements, as per_bucket_numel says
};

struct StoredBuffer {
  std::optional<DType> parameter_dtype;  // as the key says; none: quantised
  std::vector<StoredBucket> buckets;
};

class BucketStore {
 public:
  /// `catalog` must outlive the store. Reads the per_bucket_numel objects of some groups: all say
  /// the same of the number of data-parallel ranks. corrupt when an entry is no 1-D tensor, its
  /// chunks do not tile it, or buckets are missing.
  explicit BucketStore(const Catalog& catalog);

  const StoredBuffer* find(const BufferKey& key) const;
  size_t size() const noexcept { return buffers_.size(); }
  bool has_optimizer(int64_t chained) const;
  const std::map<BufferKey, StoredBuffer>& buffers() const noexcept { return buffers_; }

 private:
  void read_padded_sizes(const Catalog& catalog);

  std::map<BufferKey, StoredBuffer> buffers_;
};

}  // namespace ferry
