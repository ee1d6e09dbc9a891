#include "ckpt/format/hugging_face/hugging_face_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/base/checked.h"
#include "ckpt/format/hugging_face/safetensors.h"

namespace ferry {
namespace {

// Position of the first tensor of each shard, and one past the last.
std::vector<size_t> pack(const std::vector<Entry>& entries, uint64_t max_shard_bytes) {
  std::vector<size_t> begins{0};
  uint64_t used = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(entries[i].bytes());
    if (i > begins.back() && (used > max_shard_bytes || bytes > max_shard_bytes - used)) {
      begins.push_back(i);
      used = 0;
    }
    used = checked_add(used, bytes, "size of a shard");
  }
  begins.push_back(entries.size());
  return begins;
}

std::string shard_name(size_t shard, size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

// Names in different shards do not meet in one header.
void check_names(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorKind::invalid, "two tensors have the name {}", *twice);
}

std::string index_json(const HuggingFaceLayout& layout) {
  nlohmann::json weight_map = nlohmann::json::object();
  for (const Entry& entry : layout.target.entries) {
    weight_map[entry.name] = layout.target.files[entry.chunks[0].extent.file].path;
  }
  const nlohmann::json index{
      {"metadata",
       {{"total_parameters", layout.count.parameters}, {"total_size", layout.tensor_bytes}}},
      {"weight_map", std::move(weight_map)}};
  return index.dump(2, ' ', true) + "\n";
}

}  // namespace

HuggingFaceLayout lay_out_hugging_face(std::vector<Entry> entries, uint64_t max_shard_bytes,
                                       int64_t known_bits) {
  if (max_shard_bytes == 0) fail(ErrorKind::invalid, "a shard of 0 bytes can hold no tensor");
  check_names(entries);
  HuggingFaceLayout layout;
  layout.target.entries = std::move(entries);
  const std::vector<size_t> begins = pack(layout.target.entries, max_shard_bytes);
  const size_t shards = begins.size() - 1;
  for (size_t shard = 0; shard < shards; ++shard) {
    std::vector<Entry*> members;
    for (size_t i = begins[shard]; i < begins[shard + 1]; ++i) {
      Entry& entry = layout.target.entries[i];
      layout.tensor_bytes = checked_add(layout.tensor_bytes, static_cast<uint64_t>(entry.bytes()),
                                        "size of the model");
      members.push_back(&entry);
    }
    const uint32_t file = static_cast<uint32_t>(shard);
    uint64_t file_bytes = 0;
    std::string header =
        write_safetensors_header(std::move(members), {{"format", "pt"}}, file, &file_bytes);
    layout.literals.push_back({file, 0, std::move(header)});
    layout.target.files.push_back({shard_name(shard, shards), file_bytes});
  }
  layout.count = count_parameters(layout.target, element_kinds(layout.target, known_bits));
  if (shards > 1) layout.index_json = index_json(layout);
  return layout;
}

}  // namespace ferry
