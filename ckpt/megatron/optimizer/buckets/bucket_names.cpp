#include "ckpt/megatron/optimizer/buckets/bucket_names.h"

#include <fmt/core.h>

#include <charconv>

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

}  // namespace ferry
