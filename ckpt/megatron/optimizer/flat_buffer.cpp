#include "ckpt/megatron/optimizer/flat_buffer.h"

#include <numeric>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

constexpr int64_t kParameterAlignment = 64;
constexpr int64_t kBucketAlignment = 128;
constexpr int64_t kBandwidthAlignment = int64_t{1} << 16;

int64_t round_up(int64_t value, int64_t multiple) {
  return checked_add(value, multiple - 1, "flat optimizer buffer") / multiple * multiple;
}

}  // namespace

FlatBuffer lay_out_flat_buffer(std::span<const FlatParameter> parameters,
                               const FlatBufferRules& rules) {
  FlatBuffer buffer;
  buffer.places.resize(parameters.size());
  int64_t divisor = std::lcm(rules.ranks, kBucketAlignment);
  if (rules.pad_for_bandwidth) divisor = std::lcm(divisor, kBandwidthAlignment);
  int64_t bucket_start = 0;  // from the buffer's start, as is `next`
  int64_t next = 0;
  bool open = false;  // the current bucket has members
  const auto close = [&](int64_t end) {
    const int64_t padded_end = round_up(end, divisor);
    buffer.buckets.push_back({padded_end - bucket_start, end - bucket_start});
    bucket_start = next = padded_end;
    open = false;
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    next = round_up(next, kParameterAlignment);
    if (parameters[i].own_bucket && open) close(next);
    const int64_t begin = next;
    const int64_t end = checked_add(begin, parameters[i].elements, "flat optimizer buffer");
    buffer.places[i] = {buffer.buckets.size(), begin - bucket_start, end - bucket_start};
    open = true;
    next = end;
    const bool full = rules.bucket_elements && end - bucket_start >= *rules.bucket_elements;
    if (parameters[i].own_bucket || full) close(end);
  }
  if (open) close(next);
  return buffer;
}

}  // namespace ferry
