// The items of a fixture checkpoint, straight from its `.metadata` pickle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"
#include "tests/support.h"

namespace ferry::test {

struct Item {
  std::string key, path;
  uint64_t offset = 0, length = 0;
  bool is_tensor = false;
  Dims chunk_offset;
};

inline const std::vector<std::string>& distributed_fixtures() {
  static const std::vector<std::string> names = {
      "hot_apertus",         "hot_deepseek",     "hot_gpt2",     "hot_llama",
      "hot_mixtral",         "hot_qwen2",        "qwen2_pp2",    "llama_dp4_dpr_buckets",
      "llama_te_tp2dp2_dpr", "llama_tp2dp2_dpr", "llama_pp2vpp", "qwen3moe_te_ep2pp2_dpr",
      "swiss_llama_tp2pp2",
  };
  return names;
}

inline std::string iteration_folder(const std::string& name) {
  return fixture("megatron/" + name + "/iter_0000005");
}

inline std::shared_ptr<const Document> read_pickle_file(const std::string& path) {
  const std::string bytes = read_file(*posix_file_system(), path, 1 << 30);
  return parse_pickle(std::as_bytes(std::span(bytes)), path);
}

inline std::vector<Item> read_items(const std::string& folder) {
  const auto document = read_pickle_file(folder + "/.metadata");
  const Value storage = document->root().get("storage_data");
  std::vector<Item> items;
  for (size_t i = 0; i < storage.pair_count(); ++i) {
    const Value index = storage.pair_key(i), info = storage.pair_value(i);
    Item item;
    item.key = index.get("fqn").text();
    const Value offset = index.get("offset");
    item.is_tensor = !offset.is_none();
    for (size_t axis = 0; axis < offset.size(); ++axis) {
      item.chunk_offset.push_back(offset[axis].integer().value());
    }
    item.path = folder + "/" + info.get("relative_path").text();
    item.offset = static_cast<uint64_t>(info.get("offset").integer().value());
    item.length = static_cast<uint64_t>(info.get("length").integer().value());
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace ferry::test
