// `ferry convert --fill-from`.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::Dims;
using ferry::DType;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;

struct NewTensor {
  DType dtype;
  Dims shape;
  std::string bytes;
};
using NewTensors = std::map<std::string, NewTensor>;

NewTensors tensors_in(const std::string& folder) {
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), folder);
  NewTensors tensors;
  for (const ferry::Entry& entry : checkpoint.catalog->entries) {
    tensors[entry.name] = {entry.dtype, entry.shape,
                           ferry::read_tensor(checkpoint.catalog, entry, 1 << 20)};
  }
  return tensors;
}

struct Fill : Program {
  const std::string run = fixture("megatron/hot_llama");

  void save(const std::string& target, const NewTensors& tensors, const json& config) const {
    fs::create_directories(target);
    std::vector<ferry::Entry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, tensor.dtype, tensor.shape, {}, {}});
      data += tensor.bytes;
    }
    std::vector<ferry::Entry*> pointers;
    for (ferry::Entry& entry : entries) pointers.push_back(&entry);
    uint64_t bytes = 0;
    const std::string header = ferry::write_safetensors_header(pointers, {}, 0, &bytes);
    write(target + "/model.safetensors", header + data);
    write(target + "/config.json", config.dump());
    write(target + "/tokenizer.json", "{}");
  }
  // The run's own model as Hugging Face has it, under other names and with other values.
  NewTensors original(const std::string& prefix) const {
    EXPECT_EQ(ferry("convert " + run + " " + path("plain") + " --to hf --keep-padding").code, 0);
    NewTensors tensors;
    for (auto& [name, tensor] : tensors_in(path("plain"))) {
      const bool in_model = name.starts_with("model.");
      tensors[in_model ? prefix + name.substr(6) : name] = {tensor.dtype, tensor.shape,
                                                            std::string(tensor.bytes.size(), 7)};
    }
    return tensors;
  }
  Outcome fill(const std::string& options = "") const {
    return ferry("convert " + run + " " + path("out") + " --overwrite --to hf --keep-padding " +
                 "--fill-from " + path("original") + " " + options);
  }
};

TEST_F(Fill, TakesFromTheOriginalWhatTheCheckpointLacks) {
  NewTensors tensors = original("model.language_model.");
  tensors["model.visual.blocks.0.weight"] = {DType::bf16, {2, 3}, "abcdefghijkl"};
  tensors["mtp.layers.0.bias"] = {DType::f32, {2}, "abcdefgh"};
  save(path("original"), tensors,
       {{"model_type", "some_vl"}, {"text_config", {{"dtype", "float32"}}}});
  const Outcome outcome = fill();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const NewTensors plain = tensors_in(path("plain")), out = tensors_in(path("out"));
  ASSERT_EQ(out.size(), tensors.size());
  EXPECT_EQ(out.at("model.visual.blocks.0.weight").bytes, "abcdefghijkl");
  EXPECT_EQ(out.at("mtp.layers.0.bias").bytes, "abcdefgh");
  for (const auto& [name, tensor] : plain) {
    const std::string other =
        name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
    EXPECT_EQ(out.at(other).bytes, tensor.bytes) << name;
  }
  EXPECT_THAT(outcome.out, HasSubstr("2 tensors that the checkpoint lacks"));
  EXPECT_THAT(outcome.out, HasSubstr("model.visual (1), mtp.layers (1)"));
  EXPECT_EQ(read(path("out/tokenizer.json")), "{}");
  const json config = json::parse(read(path("out/config.json")));
  EXPECT_EQ(config.at("model_type"), "some_vl");
  EXPECT_EQ(config.at("text_config").at("dtype"), "bfloat16");
  EXPECT_EQ(ferry("verify " + path("out")).code, 0);
}

TEST_F(Fill, CastsAndQuantisesTheWhole) {
  NewTensors tensors = original("model.");
  tensors["visual.proj.weight"] = {DType::f32, {2, 2}, std::string(16, 0)};
  save(path("original"), tensors, {{"model_type", "some_vl"}});
  ASSERT_EQ(fill("--dtype bf16 --quantize fp8").code, 0);
  const NewTensors out = tensors_in(path("out"));
  EXPECT_EQ(out.at("visual.proj.weight").dtype, DType::f32);  // a vision model stays as it is
  EXPECT_EQ(out.at("model.layers.0.mlp.up_proj.weight").dtype, DType::f8_e4m3);
  EXPECT_EQ(out.at("model.layers.0.mlp.up_proj.weight_scale_inv").shape, Dims({1, 1}));
}

// The run's bytes must not be read with the original's scales, nor its scales remain.
TEST_F(Fill, MakesValuesOfAnOriginalInBlocksOfFp8) {
  NewTensors tensors = original("model.");
  const float two = 2;
  const std::string scale(reinterpret_cast<const char*>(&two), 4);
  for (const std::string name : {"model.layers.0.mlp.up_proj.weight", "mtp.weight"}) {
    NewTensor& weight = tensors[name];
    if (weight.shape.empty()) weight.shape = {1, 2};
    weight.dtype = DType::f8_e4m3;
    weight.bytes = std::string(static_cast<size_t>(weight.shape[0] * weight.shape[1]), 0x38);  // 1
    tensors[name + "_scale_inv"] = {DType::f32, {1, 1}, scale};
  }
  const json quantised = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  save(path("original"), tensors, {{"quantization_config", quantised}});
  const Outcome outcome = fill();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const NewTensors out = tensors_in(path("out"));
  EXPECT_EQ(out.at("mtp.weight").bytes, std::string("\x00\x40\x00\x40", 4));  // 2 in bf16
  EXPECT_FALSE(out.contains("mtp.weight_scale_inv"));
  EXPECT_FALSE(out.contains("model.layers.0.mlp.up_proj.weight_scale_inv"));
  EXPECT_EQ(out.at("model.layers.0.mlp.up_proj.weight").bytes,
            tensors_in(path("plain")).at("model.layers.0.mlp.up_proj.weight").bytes);
  EXPECT_FALSE(json::parse(read(path("out/config.json"))).contains("quantization_config"));
}

TEST_F(Fill, RefusesAnotherModel) {
  NewTensors tensors = original("model.");
  tensors.at("model.norm.weight").shape = {1, 32};
  save(path("original"), tensors, json::object());
  EXPECT_THAT(fill().err, HasSubstr("model.norm.weight has shape [1, 32] there, and [32]"));
  tensors.erase("model.norm.weight");
  save(path("original"), tensors, json::object());
  const Outcome lacks = fill();
  EXPECT_NE(lacks.code, 0);
  EXPECT_THAT(lacks.err, HasSubstr("lacks 1 of the 39 tensors"));
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
