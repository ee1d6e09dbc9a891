// Safetensors files next to the model's own: parts of the model, and what is none.
#include "ckpt/format/hugging_face/further_weights.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Tensor {
  std::string name;
  Dims shape = {2};
  DType dtype = DType::bf16;
};
using FileOfTensors = std::vector<Tensor>;

std::string bytes_of(const FileOfTensors& tensors) {
  std::vector<Entry> entries;
  for (const Tensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Role::model});
  }
  std::vector<Entry*> order;
  for (Entry& entry : entries) order.push_back(&entry);
  uint64_t bytes = 0;
  std::string file = write_safetensors_header(order, {}, 0, &bytes);
  file.resize(bytes);
  return file;
}

// Two layers with names as transformers has them, after `prefix`.
FileOfTensors model(const std::string& prefix = "") {
  FileOfTensors tensors = {{prefix + "model.embed_tokens.weight", {32, 8}},
                           {prefix + "lm_head.weight", {32, 8}}};
  for (const std::string layer : {"0", "1"}) {
    const std::string name = prefix + "model.layers." + layer;
    tensors.push_back({name + ".mlp.up_proj.weight", {16, 8}});
    tensors.push_back({name + ".mlp.down_proj.weight", {8, 16}});
    tensors.push_back({name + ".input_layernorm.weight", {8}});
  }
  return tensors;
}

struct FurtherWeights : testing::Test {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  HuggingFaceModel opened;

  void put(const std::string& name, const FileOfTensors& tensors) {
    files->put("m/" + name, bytes_of(tensors));
  }
  // How many tensors the model has more than model().
  size_t added() {
    opened = open_hugging_face(files, "m");
    return opened.catalog.entries.size() - model().size();
  }
  void expect_left(const std::string& name, const std::string& why) {
    EXPECT_EQ(added(), 0u) << name;
    EXPECT_THAT(opened.notes, Contains(HasSubstr(name + " is left out: " + why)));
  }
};

TEST_F(FurtherWeights, APartOfTheModelIsTaken) {
  put("model.safetensors", model());
  put("mtp.safetensors",
      {{"model.layers.2.mlp.up_proj.weight", {16, 8}}, {"model.layers.2.eh_proj.weight", {8, 16}}});
  put("extra.safetensors", {{"mtp.fc.weight", {8, 16}}});
  EXPECT_EQ(added(), 3u);
  EXPECT_EQ(opened.catalog.files.size(), 3u);
  for (const Entry& entry : opened.catalog.entries) check_chunks(opened.catalog, entry);
  EXPECT_THAT(
      opened.notes,
      ElementsAre(HasSubstr("extra.safetensors is taken as a part of the model (1 tensor)"),
                  HasSubstr("mtp.safetensors is taken as a part of the model (2 tensors)")));
}

TEST_F(FurtherWeights, APartNextToAnIndexIsTaken) {
  put("model-00001-of-00001.safetensors", model());
  nlohmann::json map;
  for (const Tensor& tensor : model()) map[tensor.name] = "model-00001-of-00001.safetensors";
  files->put("m/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  put("mtp.safetensors", {{"mtp.fc.weight", {8, 16}}});
  EXPECT_EQ(added(), 1u);
}

TEST_F(FurtherWeights, OfTensorsThatTheModelHasAlreadyTheOthersAreTaken) {
  put("model.safetensors", model());
  put("mtp.safetensors", {{"model.embed_tokens.weight", {32, 8}}, {"mtp.fc.weight", {8, 16}}});
  EXPECT_EQ(added(), 1u);
  EXPECT_THAT(opened.notes, Contains(HasSubstr("1 tensor of mtp.safetensors is left out, as the "
                                               "model has them already: model.embed_tokens.weight "
                                               "(in model.safetensors)")));
}

TEST_F(FurtherWeights, TheModelAgainIsLeftOut) {
  put("model.safetensors", model());
  put("model.fp16.safetensors", model());
  expect_left("model.fp16.safetensors", "it holds tensors that the model already has");
  put("ema.safetensors", model("ema."));
  expect_left("ema.safetensors", "the model in another form");
  put("consolidated-00001-of-00002.safetensors", {{"tok_embeddings.weight", {32, 8}}});
  expect_left("consolidated-00001-of-00002.safetensors", "the model in another form");
  put("part.safetensors", {{"something.weight", {3, 3}}});
  files->put("m/other.safetensors.index.json",
             R"({"weight_map": {"something.weight": "part.safetensors"}})");
  expect_left("part.safetensors", "the model in another form");
}

TEST_F(FurtherWeights, TheModelUnderNamesOfAnotherKindIsLeftOut) {
  FileOfTensors other = {{"tok_embeddings.weight", {32, 8}}, {"output.weight", {32, 8}}};
  for (const std::string layer : {"0", "1"}) {
    other.push_back({"layers." + layer + ".feed_forward.w3.weight", {16, 8}});
    other.push_back({"layers." + layer + ".feed_forward.w2.weight", {8, 16}});
  }
  put("model.safetensors", model());
  put("meta.safetensors", other);
  expect_left("meta.safetensors", "the model in another form");
}

TEST_F(FurtherWeights, QuantisedModulesOfTheModelAreAnotherForm) {
  FileOfTensors packed;
  for (const std::string layer : {"0", "1"}) {
    for (const std::string module : {".mlp.up_proj", ".mlp.down_proj"}) {
      packed.push_back({"model.layers." + layer + module + ".qweight", {1, 8}, DType::i32});
    }
  }
  put("model.safetensors", model());
  put("gptq_model-4bit-128g.safetensors", packed);
  expect_left("gptq_model-4bit-128g.safetensors", "the model in another form");
}

TEST_F(FurtherWeights, ScalesOfAQuantisedModelAreAPartOfIt) {
  FileOfTensors quantised = model(), scales;
  for (Tensor& tensor : quantised) {
    if (tensor.shape.size() < 2) continue;
    tensor.dtype = DType::f8_e4m3;
    scales.push_back({tensor.name + "_scale_inv", {1, 1}, DType::f32});
  }
  put("model.safetensors", quantised);
  put("scales.safetensors", scales);
  EXPECT_EQ(added(), scales.size());
}

TEST_F(FurtherWeights, AdaptersOptimizersAndShardsOfAnotherSaveAreLeftOut) {
  put("model.safetensors", model());
  put("adapter_model.safetensors", {{"a.weight"}});
  expect_left("adapter_model.safetensors", "an adapter");
  put("finetuned.safetensors", {{"model.layers.0.mlp.up_proj.lora_A.weight", {1, 8}}});
  expect_left("finetuned.safetensors", "an adapter");
  put("state.safetensors", {{"model.layers.0.mlp.up_proj.weight.exp_avg", {16, 8}}});
  expect_left("state.safetensors", "state of an optimizer");
  put("model-00002-of-00003.safetensors", {{"model.layers.2.mlp.up_proj.weight", {16, 8}}});
  expect_left("model-00002-of-00003.safetensors", "a shard of another save");
}

TEST_F(FurtherWeights, WhatCannotBeReadIsDamage) {
  put("model.safetensors", model());
  files->put("m/mtp.safetensors", bytes_of({{"mtp.fc.weight", {8, 16}}}).substr(0, 40));
  EXPECT_EQ(added(), 0u);
  EXPECT_THAT(opened.damage, ElementsAre(HasSubstr("mtp.safetensors")));
}

TEST_F(FurtherWeights, AmongFilesWithoutAnIndexOtherFormsAreNotTheModel) {
  put("pytorch-00001-of-00001.safetensors", model());
  put("consolidated.safetensors", {{"tok_embeddings.weight", {32, 8}}});
  put("adapter_model.safetensors", {{"a.weight"}});
  EXPECT_EQ(added(), 0u);
  EXPECT_THAT(unindexed_weights({"consolidated.safetensors", ".x.safetensors", "config.json"}),
              ElementsAre("consolidated.safetensors"));
}

TEST_F(FurtherWeights, NextToPicklesTheyAreNamed) {
  files->put("m/pytorch_model.bin", "");
  HuggingFaceModel model;
  model.weights = HuggingFaceWeights::torch_bin;
  model.catalog.file_system = files;
  put("mtp.safetensors", {{"mtp.fc.weight", {8, 16}}});
  add_further_weights("m", files->list("m"), model);
  EXPECT_THAT(model.catalog.entries, IsEmpty());
  EXPECT_THAT(model.notes, ElementsAre(HasSubstr("mtp.safetensors is left out")));
}

}  // namespace
}  // namespace ferry
