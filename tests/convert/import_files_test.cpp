// Hugging Face files that are not as transformers writes them today: older and bare spellings, what
// is missing or too much, quantised weights, tokenizer files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "tests/convert/models.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::Bytes;
using test::File;
using testing::HasSubstr;

TEST(Import, FusedExpertsAreThoseOfOldFiles) {
  File qwen("qwen3_moe");
  const auto expected = qwen.import();
  qwen.fuse({".gate_proj.weight", ".up_proj.weight"}, ".down_proj.weight");
  EXPECT_TRUE(qwen.tensors.contains("model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_EQ(qwen.import(), expected);

  File mixtral("mixtral");
  const auto other = mixtral.import();
  mixtral.fuse({".w1.weight", ".w3.weight"}, ".w2.weight");
  mixtral.rename(".block_sparse_moe.", ".mlp.");
  EXPECT_TRUE(mixtral.tensors.contains("model.layers.0.mlp.experts.down_proj"));
  EXPECT_EQ(mixtral.import(), other);
  mixtral.config["num_local_experts"] = 2;
  EXPECT_THAT(mixtral.failure(ErrorKind::mismatch), HasSubstr("does not hold 2 experts"));
}

// A bare model, without the outermost module; old files hold buffers besides.
TEST(Import, BareModelsAndBuffersAreKnown) {
  File gpt2("gpt2");
  const auto expected = gpt2.import();
  gpt2.rename("transformer.", "");
  gpt2.tensors["h.0.attn.bias"] = {{1, 1, 2, 2}, DType::f32, std::string(16, '\0')};
  EXPECT_EQ(gpt2.import(), expected);

  File llama("llama_tied_wide_heads");
  const auto other = llama.import();
  llama.rename("model.", "");
  llama.tensors["layers.0.self_attn.rotary_emb.inv_freq"] = {{1}, DType::f32, std::string(4, '\1')};
  llama.tensors["lm_head.weight"] = llama.tensors["embed_tokens.weight"];
  EXPECT_EQ(llama.import(), other);
}

// As transformers loads it: what both tensors hold decides, not what config.json says.
TEST(Import, AnOutputLayerOfItsOwnIsNotTied) {
  for (const std::string name : {"llama_tied_wide_heads", "gpt2"}) {
    File file(name);
    const std::string embedding =
        name == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight";
    ASSERT_EQ(file.config["tie_word_embeddings"], true);
    Bytes& head = file.tensors["lm_head.weight"];
    head = file.tensors.at(embedding);
    head.data.back() = static_cast<char>(head.data.back() + 1);
    const Checkpoint checkpoint = file.open();
    const Import import = import_model(checkpoint, {});
    EXPECT_EQ(import.state.args.value.get("untie_embeddings_and_output_weights").boolean(), true);
    EXPECT_THAT(import.state.warnings,
                testing::Contains(HasSubstr("lm_head.weight differs from " + embedding)));
    const auto written = test::tensors_of(test::write_state(import.state, file.files, "megatron"));
    EXPECT_EQ(written.at("output_layer.weight").data.substr(0, head.data.size()), head.data);

    head = file.tensors.at(embedding);
    const Checkpoint copied = file.open();
    const Import tied = import_model(copied, {});
    EXPECT_EQ(tied.state.args.value.get("untie_embeddings_and_output_weights").boolean(), false);
    EXPECT_THAT(tied.state.warnings, testing::Contains(HasSubstr("lm_head.weight is left out")));
    EXPECT_EQ(tied.state.tensors.size() + 1, import.state.tensors.size());
  }
}

// As GLM and programs that quantise models leave them, in no index.
TEST(Import, MtpLayersInAFileOfTheirOwnAreTheModels) {
  File file("deepseek_v3", {{"mtp_num_layers", 1}});
  const auto expected = file.import();
  const auto layers = file.config["num_hidden_layers"].get<int64_t>();
  const std::string prefix = "model.layers." + std::to_string(layers) + ".";
  std::map<std::string, Bytes> mtp;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(prefix)) mtp.insert({name, tensor});
  }
  ASSERT_GT(mtp.size(), 10u);
  for (const auto& [name, tensor] : mtp) file.tensors.erase(name);
  file.open();
  file.put("hf/mtp.safetensors", mtp);
  Checkpoint checkpoint = open_checkpoint(file.files, "hf");
  Import import = import_model(checkpoint, {});
  EXPECT_EQ(test::tensors_of(test::write_state(import.state, file.files, "megatron")), expected);
  EXPECT_THAT(import.state.warnings, testing::Not(testing::Contains(HasSubstr("differs from"))));

  mtp.at(prefix + "embed_tokens.weight").data.back() ^= 1;
  file.put("hf/mtp.safetensors", mtp);
  checkpoint = open_checkpoint(file.files, "hf");
  import = import_model(checkpoint, {});
  EXPECT_THAT(import.state.warnings,
              testing::Contains(HasSubstr("embed_tokens.weight is left out though it differs from "
                                          "model.embed_tokens.weight")));
}

TEST(Import, WhatIsMissingLeftOverOrMisshapenIsNamed) {
  File file("llama");
  file.tensors["model.layers.0.adapter.weight"] = file.tensors["model.norm.weight"];
  EXPECT_THAT(file.failure(ErrorKind::mismatch), HasSubstr("model.layers.0.adapter.weight"));
  ImportOptions drop;
  drop.drop_unknown = true;
  EXPECT_EQ(file.import(drop), File("llama").import());
  file = File("llama");
  file.tensors.erase("model.layers.2.self_attn.k_proj.weight");
  EXPECT_THAT(file.failure(ErrorKind::mismatch),
              HasSubstr("model.layers.2.self_attn.k_proj.weight"));
  file = File("llama");
  file.config["intermediate_size"] = 80;
  EXPECT_THAT(file.failure(ErrorKind::mismatch),
              HasSubstr("model.layers.0.mlp.gate_proj.weight: has [88, 32], config.json says "
                        "[80, 32]"));
  file = File("llama");
  file.tensors["model.layers.1.mlp.down_proj.weight"].dtype = DType::i32;
  EXPECT_THAT(file.failure(ErrorKind::mismatch), HasSubstr("must be of one dtype"));
}

TEST(Import, ConstantsMustBeMegatrons) {
  File file("apertus");
  const float other = 0.25F;
  Bytes& beta = file.tensors.at("model.layers.1.mlp.act_fn.beta");
  file.import();
  beta.data.assign(reinterpret_cast<const char*>(&other), sizeof other);
  EXPECT_THAT(file.failure(ErrorKind::unsupported),
              HasSubstr("model.layers.1.mlp.act_fn.beta: is not 0.5"));
}

TEST(Import, OneFamilyMayBeAskedFor) {
  File file("llama");
  ImportOptions options;
  options.family = "qwen3";
  EXPECT_THAT(file.failure(ErrorKind::unsupported, options), HasSubstr("not 'qwen3'"));
  const Checkpoint checkpoint = file.open();
  file.files->remove_all("hf/config.json");
  EXPECT_THROW(import_model(checkpoint, {}), Error);
}

// Weights of DeepSeek-V3's own files: fp8 with a scale a block.
TEST(Import, QuantisedWeightsBecomeBfloat16) {
  File file("deepseek_v3");
  ImportOptions as_bf16;
  as_bf16.dtype = DType::bf16;
  // Every projection as fp8 codes and scales, and in another file the values they stand for.
  File plain = file;
  uint8_t next = 0;
  for (auto& [name, tensor] : file.tensors) {
    if (!name.ends_with("_proj.weight")) continue;
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const int64_t block_rows = (rows + 15) / 16, block_columns = (columns + 7) / 8;
    Bytes scales{{block_rows, block_columns}, DType::f32, {}};
    for (int64_t i = 0; i < block_rows * block_columns; ++i) {
      const float scale = 0.01F * static_cast<float>(i + 1);
      scales.data.append(reinterpret_cast<const char*>(&scale), sizeof scale);
    }
    Bytes codes{tensor.shape, DType::f8_e4m3, {}};
    Bytes values{tensor.shape, DType::f32, {}};
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto code = static_cast<std::byte>(next++ % 0x78);
      codes.data += static_cast<char>(code);
      const int64_t block = i / columns / 16 * block_columns + i % columns / 8;
      float scale = 0;
      std::memcpy(&scale, scales.data.data() + block * 4, sizeof scale);
      const float value = static_cast<float>(load_as_double(&code, DType::f8_e4m3)) * scale;
      values.data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    plain.tensors[name] = values;
    plain.tensors[name + "_scale_inv"] = scales;
    tensor = codes;
  }
  for (auto it = plain.tensors.begin(); it != plain.tensors.end();) {
    const bool scales = it->first.ends_with("_scale_inv");
    if (scales) file.tensors[it->first] = it->second;
    it = scales ? plain.tensors.erase(it) : std::next(it);
  }
  EXPECT_THAT(file.failure(ErrorKind::mismatch, as_bf16), HasSubstr("no quantization_config"));
  file.config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {16, 8}}};
  EXPECT_EQ(file.import(as_bf16), plain.import(as_bf16));
  file.config["quantization_config"]["weight_block_size"] = {16, 16};
  EXPECT_THAT(file.failure(ErrorKind::mismatch, as_bf16), HasSubstr("does not fit blocks"));
  file.tensors.erase("model.layers.0.mlp.down_proj.weight_scale_inv");
  EXPECT_THAT(file.failure(ErrorKind::mismatch, as_bf16), HasSubstr("holds no scales"));
}

TEST(Import, TokensMissingInConfigAreThoseOfTheTokenizersFiles) {
  File file("llama");
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) file.config.erase(key);
  Checkpoint checkpoint = file.open();
  const auto args = [&] { return import_model(checkpoint, {}).state.args; };
  EXPECT_THAT(import_model(checkpoint, {}).state.warnings,
              testing::Contains(HasSubstr("eos_token_id, bos_token_id, pad_token_id are not set")));
  file.files->put("hf/generation_config.json", R"({"eos_token_id": [5, 6], "pad_token_id": -1})");
  EXPECT_EQ(args().value.get("eos_token_id").size(), 2u);
  EXPECT_TRUE(args().value.get("pad_token_id").is_none());
  file.files->put("hf/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  file.files->put(
      "hf/tokenizer.json",
      R"({"added_tokens": [{"id": 3, "content": "<s>"}], "model": {"vocab": {"a": 0}}})");
  EXPECT_EQ(args().value.get("eos_token_id")[1].integer(), 6);
  EXPECT_EQ(args().value.get("bos_token_id").integer(), 3);
  EXPECT_THAT(import_model(checkpoint, {}).state.warnings,
              testing::Not(testing::Contains(HasSubstr("unknown"))));
  // config.json goes first.
  file.config["bos_token_id"] = 1;
  file.files->put("hf/config.json", file.config.dump());
  EXPECT_EQ(args().value.get("bos_token_id").integer(), 1);
}

TEST(Import, TokensAndTokenizerFilesComeAlong) {
  File file("llama");
  file.config["bos_token_id"] = 1;
  file.config["eos_token_id"] = {2, 3};
  Checkpoint checkpoint = file.open();
  file.files->put("hf/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}}})");
  file.files->put("hf/generation_config.json", R"({"temperature": 0.6})");
  ImportOptions options;
  options.tokenizer_model = "run/release/tokenizer";
  const Import import = import_model(checkpoint, options);
  EXPECT_EQ(import.tokenizer_files.size(), 2u);
  const Value& args = import.state.args.value;
  EXPECT_EQ(args.get("tokenizer_type").string(), "HuggingFaceTokenizer");
  EXPECT_EQ(args.get("tokenizer_model").string(), "run/release/tokenizer");
  file.files->create_folder("run");
  const Checkpoint megatron = test::write_state(import.state, file.files, "run/release");
  for (const CopiedFile& copied : import.tokenizer_files) {
    file.files->put("run/release/tokenizer/" + copied.name, file.files->get(copied.from));
  }
  // The vocabulary is config.json's, not the tokenizer's; so are the tokens.
  const Export result = plan_export(megatron, {});
  test::write_hugging_face(result, *file.files, file.files, "again");
  const json config = json::parse(file.files->get("again/config.json"));
  EXPECT_EQ(config["vocab_size"], 250);
  EXPECT_EQ(config["bos_token_id"], 1);
  EXPECT_EQ(config["eos_token_id"], json({2, 3}));
  EXPECT_EQ(file.files->get("again/generation_config.json"), R"({"temperature": 0.6})");
}

}  // namespace
}  // namespace ferry
