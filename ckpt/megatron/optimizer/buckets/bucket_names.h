// Names under which flat optimizer buffers are stored.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable),
// optimizer.py (ChainedOptimizer.sharded_state_dict).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/base/dtype.h"

namespace ferry {

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

}  // namespace ferry
