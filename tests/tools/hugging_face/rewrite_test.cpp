// `ferry convert --to hf` of Hugging Face models. fixtures/fp8_blocks: `model` is random, slime
// made `fp8` of it and DeepSeek's script `bf16` of that
// (tests/interop/fixtures/make_fp8_fixtures.py).
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::DType;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

struct Stored {
  DType dtype;
  ferry::Dims shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};

std::map<std::string, Stored> tensors_of(const std::string& folder) {
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), folder);
  std::map<std::string, Stored> tensors;
  for (const ferry::Entry& entry : checkpoint.catalog->entries) {
    tensors[entry.name] = {entry.dtype, entry.shape,
                           ferry::read_tensor(checkpoint.catalog, entry, 1 << 20)};
  }
  return tensors;
}

void expect_same_tensors(const std::string& folder, const std::string& expected) {
  const auto a = tensors_of(folder), b = tensors_of(expected);
  for (const auto& [name, tensor] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    EXPECT_EQ(a.at(name), tensor) << name;
  }
  EXPECT_EQ(a.size(), b.size());
}

const std::string kModel = fixture("fp8_blocks/model");
const std::string kFp8 = fixture("fp8_blocks/fp8");
const std::string kBf16 = fixture("fp8_blocks/bf16");

struct Rewrite : Program {
  Outcome convert(const std::string& from, const std::string& options) const {
    return ferry("convert " + from + " " + path("out") + " --overwrite --to hf " + options);
  }
  json config() const { return json::parse(read(path("out/config.json"))); }
  // A copy of a fixture, to be changed.
  std::string copied(const std::string& from) const {
    fs::copy(from, path("model"), fs::copy_options::recursive);
    return path("model");
  }
};

TEST_F(Rewrite, QuantisesAsThePeersScript) {
  const Outcome outcome = convert(kModel, "--quantize fp8");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_same_tensors(path("out"), kFp8);
  EXPECT_EQ(ferry("verify " + path("out")).code, 0);
}

// The outermost module's name is the model's: it does not say what its layers are.
TEST_F(Rewrite, QuantisesAModelWhoseNameHoldsThatOfAModuleLeftAsItIs) {
  const std::string model = copied(kModel);
  json config = json::parse(R"({"model_type": "unheard_of", "vocab_size": 0})");
  write(model + "/config.json", config.dump());
  const std::string file = model + "/model.safetensors";
  const std::string bytes = read(file);
  size_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes.at(i));
  json header = json::object();
  const json before = json::parse(bytes.substr(8, length));
  for (const auto& [name, tensor] : before.items()) {
    header[name.starts_with("model.") ? "prenorm_" + name : name] = tensor;
  }
  const std::string text = header.dump();
  std::string size;
  for (size_t i = 0; i < 8; ++i) size += static_cast<char>(text.size() >> (8 * i));
  write(file, size + text + bytes.substr(8 + length));
  const Outcome outcome = convert(model, "--quantize fp8");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string tensors = ferry("inspect " + path("out") + " --tensors").out;
  EXPECT_THAT(tensors, HasSubstr("layers.0.mlp.down_proj.weight_scale_inv"));
  EXPECT_THAT(tensors, testing::Not(HasSubstr("norm.weight_scale_inv")));
}

TEST_F(Rewrite, TilesAndThreadsDoNotShowInWhatIsQuantised) {
  for (const char* options :
       {"--memory 8MiB --threads 64", "--max-shard-size 1", "--no-manifest"}) {
    ASSERT_EQ(convert(kModel, std::string("--quantize fp8 ") + options).code, 0) << options;
    expect_same_tensors(path("out"), kFp8);
  }
}

TEST_F(Rewrite, SaysHowTheWeightsAreQuantised) {
  ASSERT_EQ(convert(kModel, "--quantize fp8").code, 0);
  const std::string text = read(path("out/config.json"));
  EXPECT_THAT(text, HasSubstr("\"zeta_limit\": Infinity"));
  EXPECT_LT(text.find("architectures"), text.find("model_type"));
  std::string words = text;
  words.replace(words.find("Infinity"), 8, "0");
  const json quantised = json::parse(words).at("quantization_config");
  EXPECT_EQ(quantised.at("quant_method"), "fp8");
  EXPECT_EQ(quantised.at("fmt"), "e4m3");
  EXPECT_EQ(quantised.at("activation_scheme"), "dynamic");
  EXPECT_EQ(quantised.at("weight_block_size"), json({128, 128}));
  EXPECT_THAT(quantised.at("modules_to_not_convert"),
              ElementsAre("lm_head", "model.embed_tokens", "model.layers.0.input_layernorm",
                          "model.layers.0.mlp.gate"));
}

TEST_F(Rewrite, DequantisesAsDeepSeeksScript) {
  const Outcome outcome = convert(kFp8, "--dtype bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_same_tensors(path("out"), kBf16);
  const std::string text = read(path("out/config.json"));
  EXPECT_THAT(text, testing::Not(HasSubstr("quantization_config")));
  EXPECT_THAT(text, HasSubstr("\"torch_dtype\": \"bfloat16\""));
  EXPECT_THAT(outcome.out, HasSubstr("model.layers.0.mlp.gate.weight (float32)"));
}

TEST_F(Rewrite, QuantisesAgainWhatItMadeValuesOf) {
  ASSERT_EQ(convert(kFp8, "--dtype bf16 --quantize fp8").code, 0);
  const auto again = tensors_of(path("out"));
  ASSERT_EQ(convert(kBf16, "--quantize fp8").code, 0);
  EXPECT_EQ(again, tensors_of(path("out")));
}

TEST_F(Rewrite, MovesWhatIsQuantisedAsItIs) {
  ASSERT_EQ(convert(kFp8, "--max-shard-size 20kB").code, 0);
  EXPECT_TRUE(fs::exists(path("out/model-00002-of-00004.safetensors")));
  EXPECT_EQ(read(path("out/config.json")), read(kFp8 + "/config.json"));
  expect_same_tensors(path("out"), kFp8);
}

TEST_F(Rewrite, WritesPicklesAsSafetensors) {
  const std::string bin = fixture("hugging_face/torch_shards");
  const Outcome outcome = convert(bin, "");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(path("out/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("out/pytorch_model.bin.index.json")));
  expect_same_tensors(path("out"), bin);
}

// torch.save keeps the output layer of a tied model; transformers does not write it.
TEST_F(Rewrite, ATiedOutputLayerIsLeftOutAsTransformersLeavesItOut) {
  const std::string bin = copied(fixture("hugging_face/tied_torch"));
  const json truth = json::parse(read(bin + "/truth.json"));
  const auto stored = tensors_of(bin);
  ASSERT_TRUE(stored.contains("lm_head.weight"));
  const Outcome outcome = convert(bin, "");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("lm_head.weight is left out"));
  const auto written = tensors_of(path("out"));
  EXPECT_EQ(written.size(), truth.size());
  for (const auto& [name, tensor] : written) {
    EXPECT_TRUE(truth.contains(name)) << name;
    EXPECT_EQ(tensor, stored.at(name)) << name;
  }
  // In a model that is not tied, two names are two tensors.
  json config = json::parse(read(bin + "/config.json"));
  config["tie_word_embeddings"] = false;
  write(bin + "/config.json", config.dump());
  ASSERT_EQ(convert(bin, "").code, 0);
  EXPECT_EQ(tensors_of(path("out")).size(), stored.size());
}

TEST_F(Rewrite, CopiesOtherFilesNextToTheWeights) {
  const std::string model = copied(kModel);
  fs::create_directories(model + "/onnx");
  fs::create_directories(model + "/assets");
  fs::create_directories(model + "/.cache");
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "modeling_x.py", "README.md",
                           "assets/a.txt", "onnx/model.onnx", ".cache/x", "training_state.pt"}) {
    write(model + "/" + name, name);
  }
  const Outcome outcome = convert(model, "--dtype fp32");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name :
       {"tokenizer.json", "chat_template.jinja", "modeling_x.py", "README.md", "assets/a.txt"}) {
    EXPECT_EQ(read(path("out/") + name), name);
  }
  for (const char* name : {"onnx", ".cache", "training_state.pt"}) {
    EXPECT_FALSE(fs::exists(path("out/") + name)) << name;
  }
  EXPECT_THAT(outcome.out, HasSubstr("onnx/model.onnx, training_state.pt"));
  EXPECT_THAT(read(path("out/config.json")), HasSubstr("\"torch_dtype\": \"float32\""));
}

TEST_F(Rewrite, RefusesWhatItCannotDo) {
  const auto refused = [&](const std::string& from, const std::string& options,
                           const std::string& why) {
    const Outcome outcome = convert(from, options);
    EXPECT_NE(outcome.code, 0) << options;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << options;
    EXPECT_FALSE(fs::exists(path("out")));
  };
  refused(kFp8, "--quantize fp8", "are quantised (fp8, blocks of [128, 128]) already");
  refused(kModel, "--vocab-size 5", "--vocab-size cannot be used with --to hf");
  refused(kModel, "--family llama", "max_position_embeddings is missing");
  refused(kModel, "--dtype float8_e4m3fn", "--quantize fp8 makes them");
  refused(kModel + " --quantize int3", "", "int4-g128");
}

// Names of the model's, in its header, that are as long as those that they become.
TEST_F(Rewrite, LeavesWhatIsNoLinearLayer) {
  const std::string model = copied(kModel);
  std::string bytes = read(model + "/model.safetensors");
  const std::string from = "self_attn.q_proj.weight", to = "attn.attn.c_attn.weight";
  bytes.replace(bytes.find(from), from.size(), to);
  write(model + "/model.safetensors", bytes);
  ASSERT_EQ(convert(model, "--quantize fp8").code, 0);
  const auto out = tensors_of(path("out"));
  EXPECT_EQ(out.at("model.layers.0.attn.attn.c_attn.weight").dtype, DType::bf16);
  EXPECT_EQ(out.at("model.layers.0.mlp.down_proj.weight").dtype, DType::f8_e4m3);
}

TEST_F(Rewrite, NamesOtherQuantisations) {
  const std::string model = copied(kModel);
  write(model + "/config.json", R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})");
  const Outcome refused = convert(model, "--dtype bf16");
  EXPECT_EQ(refused.code, 5) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("quantised by gptq"));
  const Outcome moved = convert(model, "");
  ASSERT_EQ(moved.code, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("quantised by gptq, 4 bits, but no tensor is"));
  expect_same_tensors(path("out"), kModel);
}

TEST_F(Rewrite, RefusesScalesThatAreMissingOrDoNotFit) {
  const std::string model = copied(kFp8);
  std::string config = read(model + "/config.json");
  const size_t at = config.find("128");
  write(model + "/config.json", config.replace(at, 3, "64"));
  EXPECT_THAT(convert(model, "--dtype bf16").err, HasSubstr("does not fit blocks of [64, 128]"));
  write(model + "/config.json", "{}");
  EXPECT_THAT(convert(model, "--dtype bf16").err, HasSubstr("weight_block_size"));
  fs::copy(kFp8 + "/config.json", model + "/config.json", fs::copy_options::overwrite_existing);
  std::string bytes = read(model + "/model.safetensors");
  const size_t name = bytes.find("weight_scale_inv");
  write(model + "/model.safetensors", bytes.replace(name, 16, "weight_scale_xyz"));
  EXPECT_THAT(convert(model, "--dtype bf16").err, HasSubstr("holds no scales"));
}

}  // namespace
