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
  static constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";
  static constexpr const char* kExpert = "model.layers.1.block_sparse_moe.experts.2.w1.weight";
  static constexpr const char* kExpertScales =
      "model.layers.1.block_sparse_moe.experts.2.w1.weight_scale_inv";

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

  // Ways of breaking it that several commands are asked about.
  void give_an_unknown_type() const {
    edit_config("model_type", "unheard_of");
    edit_config("architectures", {"UnheardOfForCausalLM"});
  }
  void lose_a_shard() const { std::filesystem::remove(shard_of(kNorm)); }
  void cut_a_shard() const {
    std::filesystem::resize_file(shard_of(kNorm), std::filesystem::file_size(shard_of(kNorm)) - 8);
  }
  void name_a_ghost_in_the_index() const {
    edit_index([](nlohmann::json& map) { map["model.ghost.weight"] = map.front(); });
  }
  void lose_a_name_of_the_index() const {
    edit_index([](nlohmann::json& map) { map.erase(kNorm); });
  }
  void lose_the_output_layer() const {  // which a model of an unknown type has by this member alone
    edit_config("tie_word_embeddings", false);
    lose("lm_head.weight");
  }
  void misspell_a_norm() const { rename(kNorm, "model.layers.1.input_layer_norm.weight"); }
  void rename_scales() const { rename(kExpertScales, "model.layers.1.block_sparse_moe.scales"); }
  void change_a_shape() const {
    edit_shard(kNorm, [](Shard& shard) {
      nlohmann::json& shape = shard.header[kNorm]["shape"];
      shape.insert(shape.begin(), 1);
    });
  }
  void change_a_dtype() const {
    edit_shard(kNorm, [](Shard& shard) { shard.header[kNorm]["dtype"] = "F16"; });
  }

  /// `look` at a copy that `change` has broken; both see it as `model`.
  void with_broken_copy(const std::function<void()>& change, const std::function<void()>& look) {
    const std::string healthy = model;
    model = path("broken");
    std::filesystem::copy(healthy, model, std::filesystem::copy_options::recursive);
    change();
    look();
    std::filesystem::remove_all(model);
    model = healthy;
  }
};

}  // namespace ferry::test
