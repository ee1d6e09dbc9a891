// A healthy Hugging Face folder in several shards, quantised as fp8, and tools to break it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support.h"
#include "tests/tools/program.h"

namespace ferry::test {

// A safetensors file: its header, and the bytes after it.
struct Shard {
  nlohmann::json header;
  std::string data;

  explicit Shard(const std::string& path) {
    const std::string bytes = Program::read(path);
    size_t length = 0;
    for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes.at(i));
    header = nlohmann::json::parse(bytes.substr(8, length));
    data = bytes.substr(8 + length);
  }

  void save(const std::string& path) const {
    const std::string text = header.dump();
    std::string bytes;
    for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
    Program::write(path, bytes + text + data);
  }

  // Without a tensor and its bytes.
  void remove(const std::string& name) {
    const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    data.erase(begin, end - begin);
    header.erase(name);
    for (auto& [other, tensor] : header.items()) {
      if (other == "__metadata__" || tensor["data_offsets"][0] < begin) continue;
      for (nlohmann::json& offset : tensor["data_offsets"])
        offset = offset.get<size_t>() - (end - begin);
    }
  }
};

struct BrokenFolder : Program {
  std::string model;

  void SetUp() override {
    Program::SetUp();
    model = path("model");
    const Outcome made = ferry("convert " + fixture("megatron/hot_mixtral") + " " + model +
                               " --to hf --no-manifest --quantize fp8 --max-shard-size 100kB");
    ASSERT_EQ(made.code, 0) << made.err;
    ASSERT_TRUE(std::filesystem::exists(index_path()));
  }

  std::string index_path() const { return model + "/model.safetensors.index.json"; }

  void edit(const std::string& file, const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json value = nlohmann::json::parse(read(file));
    change(value);
    write(file, value.dump());
  }
  void edit_config(const std::string& member, const nlohmann::json& value) const {
    edit(model + "/config.json", [&](nlohmann::json& config) { config[member] = value; });
  }
  void edit_index(const std::function<void(nlohmann::json&)>& change) const {
    edit(index_path(), [&](nlohmann::json& index) { change(index["weight_map"]); });
  }
  std::string shard_of(const std::string& tensor) const {
    return model + "/" +
           nlohmann::json::parse(read(index_path()))["weight_map"][tensor].get<std::string>();
  }
  void edit_shard(const std::string& tensor, const std::function<void(Shard&)>& change) const {
    Shard shard(shard_of(tensor));
    change(shard);
    shard.save(shard_of(tensor));
  }
  void rename(const std::string& from, const std::string& to) const {
    const std::string file = shard_of(from);
    edit_shard(from, [&](Shard& shard) {
      shard.header[to] = shard.header[from];
      shard.header.erase(from);
    });
    edit_index([&](nlohmann::json& map) {
      map[to] = file.substr(model.size() + 1);
      map.erase(from);
    });
  }

  /// Takes a tensor out of its shard and out of the index.
  void lose(const std::string& name) const {
    edit_shard(name, [&](Shard& shard) { shard.remove(name); });
    edit_index([&](nlohmann::json& map) { map.erase(name); });
  }
};

}  // namespace ferry::test
