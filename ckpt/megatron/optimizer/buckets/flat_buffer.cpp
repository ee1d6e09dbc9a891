#include "ckpt/megatron/optimizer/buckets/flat_buffer.h"

#include <algorithm>
#include <numeric>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

constexpr int64_t kParameterAlignment = 64;
constexpr int64_t kBucketAlignment = 128;
constexpr int64_t kBandwidthAlignment = int64_t{1} << 16;

int64_t padded_to(int64_t value, int64_t multiple) {
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
    const int64_t padded_end = padded_to(end, divisor);
    buffer.buckets.push_back({padded_end - bucket_start, end - bucket_start});
    bucket_start = next = padded_end;
    open = false;
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    next = padded_to(next, kParameterAlignment);
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

std::vector<std::vector<size_t>> parameters_of_buckets(const FlatBuffer& buffer) {
  std::vector<std::vector<size_t>> positions(buffer.buckets.size());
  for (size_t i = buffer.places.size(); i-- > 0;) positions[buffer.places[i].bucket].push_back(i);
  return positions;
}

std::vector<std::vector<int64_t>> parameter_bounds(const FlatBuffer& buffer) {
  std::vector<std::vector<int64_t>> bounds(buffer.buckets.size());
  for (const FlatPlace& place : buffer.places) {
    bounds[place.bucket].push_back(place.begin);
    bounds[place.bucket].push_back(place.end);
  }
  return bounds;
}

void add_rank_bounds(const FlatBucket& bucket, int64_t ranks, std::vector<int64_t>& bounds) {
  const int64_t part = bucket.elements / ranks;
  for (int64_t bound = part; part > 0 && bound < bucket.unpadded; bound += part) {
    bounds.push_back(bound);
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
}

std::vector<int64_t> coalesced_bounds(const FlatBuffer& buffer) {
  std::vector<int64_t> bounds = {0};
  for (const FlatBucket& bucket : buffer.buckets) {
    bounds.push_back(checked_add(bounds.back(), bucket.unpadded, "flat optimizer buffer"));
  }
  return bounds;
}

}  // namespace ferry
