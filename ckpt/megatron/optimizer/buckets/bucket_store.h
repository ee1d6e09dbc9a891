// The bucket entries of a checkpoint, sorted by the buffer they belong to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/optimizer/buckets/bucket_names.h"

namespace ferry {

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
