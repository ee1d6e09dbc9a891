// Megatron -> Hugging Face -> Megatron -> Hugging Face over real checkpoints and over models of
// every family, and files that are not what they should be.
#include "convert/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"
#include "convert/arguments/arguments.h"
#include "convert/recognise.h"
#include "tests/convert/round_trip.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::Bytes;
using testing::Contains;
using testing::HasSubstr;

std::vector<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(FERRY_FIXTURES + folder)) {
    names.insert(file.path().stem().string());
  }
  return {names.begin(), names.end()};
}

class RealCheckpoints : public testing::TestWithParam<std::string> {};

TEST_P(RealCheckpoints, ComeBackWithTheSameNamesAndBytes) {
  // Megatron Core 0.16 with its local modules has names that releases since have given up.
  const std::string core = FERRY_FIXTURES "/core/" + GetParam();
  const bool old = std::filesystem::exists(core);
  const std::string path = old ? core : FERRY_FIXTURES "/megatron/" + GetParam();
  test::expect_round_trip(open_checkpoint(posix_file_system(), path), !old);
}

INSTANTIATE_TEST_SUITE_P(All, RealCheckpoints, testing::ValuesIn(names_in("/hf_golden")),
                         [](const auto& suite) { return suite.param; });

// A model with the tensors that its arguments ask for, stacked as today's Megatron-LM stacks them.
struct Model {
  json args;
  Architecture architecture;
  const Family* family = nullptr;
  test::Tensors tensors;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();

  explicit Model(const std::string& name, const json& changes = json::object())
      : args(test::read_json(FERRY_FIXTURES "/hf_names/" + name + ".json")["args"]) {
    args.update(changes);
    architecture = read_arguments(test::loaded(args).value, name).architecture;
    family = &choose_family(architecture, std::nullopt, name);
    tensors = test::stacked_as_today(test::canonical_tensors(*family, architecture), architecture);
  }
  Checkpoint megatron() { return test::checkpoint_of(tensors, args, files); }
  Checkpoint hugging_face() {
    return test::write_hugging_face(plan_export(megatron(), {}), *files, files, "hf");
  }
};

class Models : public testing::TestWithParam<std::string> {};

TEST_P(Models, ComeBackWithTheSameNamesAndBytes) {
  Model model(GetParam());
  // transformers always has the router's bias: a model without one gets zeros.
  test::expect_round_trip(model.megatron(), GetParam() != "deepseek_v3_no_bias");
}

TEST_P(Models, ArgumentsMakeTheSameModel) {
  Model model(GetParam());
  const Import import = import_model(model.hugging_face(), {});
  const ReadArguments read = read_arguments(import.state.args.value, GetParam());
  EXPECT_THAT(read.problems, testing::IsEmpty());
  const Architecture &a = read.architecture, &b = model.architecture;
  EXPECT_EQ(a.padded_vocab, 256);
  EXPECT_EQ(a.groups, b.mla ? b.heads : b.groups);
  EXPECT_EQ(a.moe_layers, b.moe_layers);
  EXPECT_EQ(a.windowed_layers, b.windowed_layers);
  EXPECT_EQ(choose_family(a, std::nullopt, GetParam()).name, model.family->name);
  EXPECT_EQ(import.state.iteration, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(names_in("/hf_names")),
                         [](const auto& suite) { return suite.param; });

TEST(Import, PredictionLayersComeBack) {
  Model model("deepseek_v3", {{"mtp_num_layers", 2}});
  ASSERT_TRUE(model.tensors.contains("mtp.layers.1.transformer_layer.mlp.router.weight"));
  test::expect_round_trip(model.megatron(), true);
}

// transformers keeps the number of prediction layers, but drops their tensors, when it saves.
TEST(Import, PredictionLayersThatAreNotThereAreTold) {
  Model model("deepseek_v3");
  const Checkpoint checkpoint = model.hugging_face();
  json config = json::parse(model.files->get("hf/config.json"));
  config["num_nextn_predict_layers"] = 1;
  model.files->put("hf/config.json", config.dump());
  const Import import = import_model(checkpoint, {});
  EXPECT_THAT(import.state.warnings, Contains(HasSubstr("counts 1 prediction layers")));
  EXPECT_TRUE(import.state.args.value.get("mtp_num_layers").is_none());
}

// Written as Megatron-LM's distributed checkpoint by four ranks, opened and exported again.
TEST_P(Models, ComeBackThroughADistributedCheckpoint) {
  Model model(GetParam());
  const Checkpoint first = model.hugging_face();
  ImportOptions options;
  options.layout.tensor = 2;
  options.layout.pipeline = 2;
  if (model.architecture.experts > 0) options.layout.expert = 2;
  const Import import = import_model(first, options);
  const Checkpoint back = test::write_torch_dist(import.state, model.files, "run");
  EXPECT_EQ(back.layout.tensor, 2);
  EXPECT_EQ(back.layout.pipeline, 2);
  const Checkpoint second =
      test::write_hugging_face(plan_export(back, {}), *model.files, model.files, "again");
  EXPECT_EQ(test::tensors_of(second), test::tensors_of(first));
  EXPECT_EQ(json::parse(model.files->get("again/config.json")),
            json::parse(model.files->get("hf/config.json")));
}

const StateTensor& tensor_of(const Import& import, const std::string& name) {
  for (const StateTensor& tensor : import.state.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no " + name);
}

TEST(Import, VocabularyIsPaddedForTheTensorRanks) {
  Model model("llama");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.layout.tensor = 2;
  const Import import = import_model(checkpoint, options);
  EXPECT_EQ(tensor_of(import, "output_layer.weight").shape, (Dims{256, 32}));
  EXPECT_EQ(import.state.args.value.get("padded_vocab_size").integer(), 256);
  EXPECT_EQ(import.state.args.value.get("vocab_size").integer(), 250);
  options.make_vocab_size_divisible_by = 1;
  EXPECT_EQ(tensor_of(import_model(checkpoint, options), "output_layer.weight").shape[0], 250);
  options.make_vocab_size_divisible_by = 100;
  EXPECT_EQ(tensor_of(import_model(checkpoint, options), "output_layer.weight").shape[0], 400);
}

TEST(Import, DtypeCastsAllButTheIslands) {
  Model model("deepseek_v3");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.dtype = DType::bf16;
  const Import import = import_model(checkpoint, options);
  EXPECT_EQ(tensor_of(import, "output_layer.weight").dtype, DType::bf16);
  EXPECT_EQ(tensor_of(import, "decoder.layers.1.mlp.router.expert_bias").dtype, DType::f32);
  EXPECT_EQ(import.state.args.value.get("bf16").boolean(), true);
  EXPECT_EQ(import.state.args.value.get("params_dtype").text(), "torch.bfloat16");
  EXPECT_THAT(import.flags, Contains("--bf16"));
}

TEST(Import, FlagsSayWhatCheckpointArgsLeaveOut) {
  Model qwen("qwen3");
  const Import qwen3 = import_model(qwen.hugging_face(), {});
  EXPECT_THAT(qwen3.flags, testing::ElementsAre("--qk-layernorm"));
  Model windows("qwen2_windows");
  EXPECT_THAT(import_model(windows.hugging_face(), {}).flags,
              testing::IsSupersetOf({"--window-size 31,0", "--window-attn-skip-freq [0,0,1,1]"}));
  Model deepseek("deepseek_v2_plain_queries");
  EXPECT_THAT(import_model(deepseek.hugging_face(), {}).flags,
              testing::IsSupersetOf({"--multi-latent-attention", "--kv-lora-rank 16",
                                     "--rotary-scaling-factor 40", "--mscale-all-dim 1",
                                     "--moe-router-num-groups 2"}));
}

TEST(Import, LayoutsThatDoNotFitAreRefused) {
  Model model("llama");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.layout.tensor = 3;
  EXPECT_THROW(import_model(checkpoint, options), Error);
  options.layout.tensor = 1;
  options.layout.pipeline = 3;
  EXPECT_THROW(import_model(checkpoint, options), Error);
  options.layout.pipeline = 1;
  options.layout.expert = 2;
  EXPECT_THROW(import_model(checkpoint, options), Error);
}

// A Hugging Face file made by hand: tensors by name.
struct File {
  std::map<std::string, Bytes> tensors;
  json config;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();

  explicit File(const std::string& name) {
    Model model(name);
    tensors = test::tensors_of(model.hugging_face());
    config = json::parse(model.files->get("hf/config.json"));
  }

  Checkpoint open() {
    files = std::make_shared<MemoryFileSystem>();
    std::vector<Entry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, tensor.dtype, tensor.shape, {}, Role::model});
    }
    const HuggingFaceLayout layout = lay_out_hugging_face(entries);
    std::string bytes(layout.target.files[0].bytes, '\0');
    for (const Literal& literal : layout.literals) {
      bytes.replace(literal.offset, literal.bytes.size(), literal.bytes);
    }
    for (const Entry& entry : layout.target.entries) {
      const std::string& data = tensors.at(entry.name).data;
      bytes.replace(entry.chunks[0].extent.offset, data.size(), data);
    }
    files->put("hf/model.safetensors", bytes);
    files->put("hf/config.json", config.dump());
    return open_checkpoint(files, "hf");
  }

  std::map<std::string, Bytes> import(const ImportOptions& options = {}) {
    const Checkpoint checkpoint = open();
    return test::tensors_of(
        test::write_state(import_model(checkpoint, options).state, files, "megatron"));
  }

  std::string failure(ErrorKind kind, const ImportOptions& options = {}) {
    try {
      import(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }

  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, Bytes> renamed;
    for (const auto& [name, tensor] : tensors) {
      renamed[test::replaced(name, from, to)] = tensor;
    }
    tensors = std::move(renamed);
  }

  // The experts of each layer in one tensor, as transformers 5 holds them.
  void fuse(const std::vector<std::string>& gate_up, const std::string& down) {
    std::map<std::string, Bytes> fused;
    for (const auto& [name, tensor] : tensors) {
      const size_t at = name.find(".experts.");
      if (at == std::string::npos) {
        fused[name] = tensor;
        continue;
      }
      const std::string layer = name.substr(0, at) + ".experts.";
      const bool is_down = name.ends_with(down);
      Bytes& all = fused[layer + (is_down ? "down_proj" : "gate_up_proj")];
      if (!all.shape.empty()) continue;
      for (int64_t expert = 0; expert < 4; ++expert) {
        for (const std::string& part : is_down ? std::vector{down} : gate_up) {
          const Bytes& one = tensors.at(layer + std::to_string(expert) + part);
          all.data += one.data;
          all.shape = {4, one.shape[0] * (is_down ? 1 : 2), one.shape[1]};
        }
      }
    }
    tensors = std::move(fused);
  }
};

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
  // Of every projection: fp8 codes and scales, and beside it what they stand for.
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
