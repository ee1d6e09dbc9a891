// plan_export: options, prediction layers, constants, tokenizer files, and checkpoints that are not
// what they should be.
#include "convert/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "convert/arguments/arguments.h"
#include "convert/model/mismatch.h"
#include "convert/recognise.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

nlohmann::json args_of(const std::string& name) {
  return test::read_json(FERRY_FIXTURES "/hf_names/" + name + ".json")["args"];
}

struct ExportedModel {
  nlohmann::json args;
  test::Tensors tensors;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  Checkpoint checkpoint;

  explicit ExportedModel(const std::string& name,
                         const nlohmann::json& changes = nlohmann::json::object())
      : args(args_of(name)) {
    args.update(changes);
    const LoadedValue loaded = test::loaded(args);
    const Architecture a = read_arguments(loaded.value, name).architecture;
    tensors = test::canonical_tensors(choose_family(a, std::nullopt, name), a);
  }
  Export plan(const ExportOptions& options = {}) {
    checkpoint = test::checkpoint_of(tensors, args, files);
    Export result = plan_export(checkpoint, options);
    check(result.plan);
    return result;
  }
  std::string failure(ErrorKind kind, const ExportOptions& options = {}) {
    try {
      plan(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }
};

const Entry& entry_of(const Export& result, const std::string& name) {
  const Entry* entry = result.plan.target.find(name);
  if (entry == nullptr) throw std::runtime_error("no " + name);
  return *entry;
}

nlohmann::json config_of(const Export& result) {
  return nlohmann::json::parse(result.small_files.front().second);
}

TEST(Export, OutlivesTheCheckpoint) {
  ExportedModel model("llama");
  const Export result = model.plan();
  const auto written = [&](const std::string& folder) {
    model.files->create_folder(folder);
    run(result.plan, *model.files, folder, {});
    return model.files->get(folder + "/model.safetensors");
  };
  const std::string before = written("before");
  model.checkpoint = {};
  EXPECT_TRUE(written("after") == before);
}

TEST(Export, DtypeCastsAllButTheIslands) {
  ExportedModel model("deepseek_v3");
  ExportOptions options;
  options.dtype = DType::bf16;
  const Export result = model.plan(options);
  EXPECT_EQ(entry_of(result, "model.layers.1.self_attn.o_proj.weight").dtype, DType::bf16);
  EXPECT_EQ(entry_of(result, "model.layers.1.mlp.gate.e_score_correction_bias").dtype, DType::f32);
  EXPECT_EQ(config_of(result)["dtype"], "bfloat16");
  EXPECT_EQ(config_of(result)["torch_dtype"], "bfloat16");
  options.dtype = DType::i32;
  EXPECT_THAT(model.failure(ErrorKind::invalid, options), HasSubstr("not a floating-point type"));
}

TEST(Export, ShardsHaveAnIndex) {
  ExportedModel model("llama");
  ExportOptions options;
  options.max_shard_bytes = 100'000;
  const Export result = model.plan(options);
  EXPECT_GT(result.plan.target.files.size(), 2u);
  EXPECT_EQ(result.plan.target.files.front().path.substr(0, 12), "model-00001-");
  EXPECT_EQ(result.small_files.back().first, "model.safetensors.index.json");
  const auto index = nlohmann::json::parse(result.small_files.back().second);
  EXPECT_EQ(index["weight_map"].size(), result.plan.target.entries.size());
}

TEST(Export, VocabularyIsCutAndNamedAsDropped) {
  ExportedModel model("llama");
  const Export result = model.plan();
  EXPECT_EQ(entry_of(result, "model.embed_tokens.weight").shape, (Dims{250, 32}));
  EXPECT_EQ(entry_of(result, "lm_head.weight").shape, (Dims{250, 32}));
  ExportOptions keep;
  keep.keep_padding = true;
  const Export kept = model.plan(keep);
  EXPECT_EQ(entry_of(kept, "lm_head.weight").shape, (Dims{256, 32}));
  EXPECT_EQ(config_of(kept)["vocab_size"], 256);
}

// The layers after the last one, as in DeepSeek-V3's own index.
TEST(Export, PredictionLayersFollowTheLast) {
  ExportedModel model("deepseek_v3", {{"mtp_num_layers", 1}});
  EXPECT_TRUE(model.tensors.contains("mtp.layers.0.transformer_layer.mlp.router.weight"));
  const Export result = model.plan();
  EXPECT_EQ(config_of(result)["num_nextn_predict_layers"], 1);
  EXPECT_EQ(entry_of(result, "model.layers.4.eh_proj.weight").shape, (Dims{32, 64}));
  for (const char* name :
       {"enorm.weight", "hnorm.weight", "shared_head.norm.weight", "input_layernorm.weight",
        "post_attention_layernorm.weight", "self_attn.q_a_proj.weight", "mlp.gate.weight",
        "mlp.gate.e_score_correction_bias", "mlp.experts.3.down_proj.weight",
        "mlp.shared_experts.up_proj.weight"}) {
    entry_of(result, std::string("model.layers.4.") + name);
  }
  EXPECT_EQ(entry_of(result, "model.layers.4.embed_tokens.weight").shape, (Dims{250, 32}));
  EXPECT_EQ(entry_of(result, "model.layers.4.shared_head.head.weight").shape, (Dims{250, 32}));
  EXPECT_EQ(result.plan.target.find("model.layers.5.enorm.weight"), nullptr);
  // The live module's name in Megatron is another than the one in its checkpoints.
  model.tensors = test::renamed(model.tensors, {{".transformer_layer.", ".mtp_model_layer."}});
  EXPECT_EQ(model.plan().plan.target.entries.size(), result.plan.target.entries.size());
}

// transformers has a formula of its own where one of the two factors is zero.
TEST(Export, YarnSaysItsAttentionFactorWhereTheFormulasDiffer) {
  ExportedModel model("deepseek_v3",
                      {{"rotary_scaling_factor", 40}, {"mscale", 1.3}, {"mscale_all_dim", 0}});
  const auto rope = config_of(model.plan())["rope_parameters"];
  EXPECT_EQ(rope["rope_type"], "yarn");
  EXPECT_NEAR(rope["attention_factor"].get<double>(), 1 + 0.13 * std::log(40), 1e-12);
  ExportedModel usual("deepseek_v3",
                      {{"rotary_scaling_factor", 40}, {"mscale", 0.7}, {"mscale_all_dim", 0.7}});
  EXPECT_FALSE(config_of(usual.plan())["rope_parameters"].contains("attention_factor"));
}

TEST(Export, ConstantsOfTheActivationAreInTheFile) {
  ExportedModel model("apertus");
  const Export result = model.plan();
  model.files->create_folder("out");
  run(result.plan, *model.files, "out", {});
  const std::string data = model.files->get("out/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data.data(), sizeof header_bytes);
  const auto header = nlohmann::json::parse(data.substr(8, header_bytes));
  for (const auto& [name, value] : {std::pair{"beta", 0.5f}, std::pair{"eps", -1e-6f}}) {
    const auto& entry = header[std::string("model.layers.3.mlp.act_fn.") + name];
    EXPECT_EQ(entry["shape"], nlohmann::json::array());
    const auto begin = entry["data_offsets"][0].get<size_t>();
    EXPECT_EQ(test::floats(data.substr(8 + header_bytes + begin, 4)).front(), value);
  }
}

TEST(Export, AMissingTensorIsNamedWithTheNearestOne) {
  ExportedModel model("llama");
  model.tensors =
      test::renamed(model.tensors, {{".2.mlp.linear_fc2.weight", ".2.mlp.linear_fcc2.weight"}});
  model.tensors.erase("decoder.layers.0.self_attention.linear_proj.weight");
  const std::string message = model.failure(ErrorKind::mismatch);
  EXPECT_THAT(message, HasSubstr("decoder.layers.2.mlp.linear_fc2.weight; the checkpoint has "
                                 "decoder.layers.2.mlp.linear_fcc2.weight"));
  EXPECT_THAT(message, HasSubstr("missing for llama (2)"));
  EXPECT_THAT(message, HasSubstr("decoder.layers.0.self_attention.linear_proj.weight"));
  EXPECT_THAT(message, HasSubstr("left over (1)"));
}

TEST(Export, ALayerTooManyIsLeftOver) {
  ExportedModel model("llama");
  model.args["num_layers"] = 3;
  EXPECT_THAT(model.failure(ErrorKind::mismatch),
              AllOf(HasSubstr("left over (6)"), HasSubstr("decoder.layers.3.mlp.linear_fc1.weight"),
                    Not(HasSubstr("missing"))));
  ExportedModel stacked("llama");
  stacked.tensors = test::stacked(stacked.tensors, "decoder.layers.", 4);
  stacked.args["num_layers"] = 3;
  EXPECT_THAT(stacked.failure(ErrorKind::mismatch), HasSubstr("axis 0 should stack 3 layers"));
}

TEST(Export, AnotherShapeIsNamed) {
  ExportedModel model("llama");
  model.args["ffn_hidden_size"] = 80;
  EXPECT_THAT(
      model.failure(ErrorKind::mismatch),
      HasSubstr(
          "decoder.layers.0.mlp.linear_fc1.weight: has [176, 32], the arguments say [160, 32]"));
}

TEST(Export, AnUnknownTensorIsNeverDropped) {
  ExportedModel model("llama");
  model.tensors["decoder.layers.0.adapter.weight"] = {{2}, {1, 2}};
  EXPECT_THAT(model.failure(ErrorKind::mismatch), HasSubstr("decoder.layers.0.adapter.weight"));
}

TEST(Export, HalvesMustMatch) {
  ExportedModel model("llama");
  model.tensors = test::split_halves(model.tensors);
  model.tensors["decoder.layers.0.mlp.linear_fc1.weight_v"] = {{2}, {1, 2}};
  EXPECT_THAT(model.failure(ErrorKind::mismatch), HasSubstr("are parts of one"));
}

TEST(Export, ArgumentsThatNothingExpressesAreRefused) {
  ExportedModel model("llama");
  model.args["qk_l2_norm"] = true;
  EXPECT_THAT(model.failure(ErrorKind::unsupported), HasSubstr("qk_l2_norm is true"));
}

TEST(Export, TokenizerFilesAreFoundAndRead) {
  ExportedModel model("llama",
                      {{"vocab_size", nullptr}, {"tokenizer_type", "HuggingFaceTokenizer"}});
  const std::string folder = "ckpt/iter_0000001/tokenizer/";
  model.files->put(
      folder + "tokenizer.json",
      R"({"added_tokens": [{"id": 240, "content": "<s>"}, {"id": 241, "content": "</s>"}],
                       "model": {"type": "BPE", "vocab": {"a": 0, "b": 239}, "merges": ["a b"]}})");
  model.files->put(folder + "tokenizer_config.json",
                   R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  model.files->put(folder + "optimizer.pt", "no");
  const Export result = model.plan();
  std::vector<std::string> names;
  for (const CopiedFile& file : result.tokenizer_files) names.push_back(file.name);
  EXPECT_THAT(names, testing::ElementsAre("tokenizer.json", "tokenizer_config.json"));
  const auto config = config_of(result);
  EXPECT_EQ(config["vocab_size"], 242);
  EXPECT_EQ(config["bos_token_id"], 240);
  EXPECT_EQ(config["eos_token_id"], 241);
  EXPECT_TRUE(config["pad_token_id"].is_null());
  const auto generation = nlohmann::json::parse(result.small_files[1].second);
  EXPECT_EQ(generation["eos_token_id"], 241);
  EXPECT_FALSE(generation.contains("pad_token_id"));
}

// The file of a SentencePiece model is not read: tokenizer_config.json has the ids.
TEST(Export, SpecialTokensAreFoundWhereverTheyStand) {
  const auto ids_of = [](const std::map<std::string, std::string>& files,
                         std::vector<std::string>* warnings = nullptr) {
    ExportedModel model("llama");
    for (const auto& [name, content] : files) model.files->put("tok/" + name, content);
    ExportOptions options;
    if (!files.empty()) options.tokenizer_folder = "tok";
    const Export result = model.plan(options);
    if (warnings) *warnings = result.warnings;
    const auto config = config_of(result);
    return nlohmann::json{config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]}
        .dump();
  };
  const std::string named = R"({"added_tokens_decoder": {"7": {"content": "<s>"}, "8": {"content":
      "</s>"}, "x": {"content": "<pad>"}}, "bos_token": "<s>", "eos_token": {"content": "</s>"}})";
  EXPECT_EQ(ids_of({{"tokenizer.model", "?"}, {"tokenizer_config.json", named}}), "[7,8,null]");
  // In an old vocabulary they are tokens like others.
  EXPECT_EQ(ids_of({{"vocab.json", R"({"a": 0, "<end>": 5})"},
                    {"merges.txt", ""},
                    {"special_tokens_map.json", R"({"eos_token": "<end>"})"}}),
            "[null,5,null]");
  EXPECT_EQ(ids_of({{"tokenizer.json", R"({"model": {"type": "Unigram", "vocab":
                         [["<unk>", 0], ["<s>", 0], ["</s>", 0]]}})"},
                    {"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})"}}),
            "[1,2,null]");
  // What generation_config.json says is what ends a text.
  EXPECT_EQ(ids_of({{"tokenizer.model", "?"},
                    {"tokenizer_config.json", named},
                    {"generation_config.json", R"({"eos_token_id": [8, 9], "pad_token_id": 3})"}}),
            "[7,[8,9],3]");
  std::vector<std::string> warnings;
  EXPECT_EQ(ids_of({{"tokenizer.model", "?"}, {"tokenizer_config.json", R"({"eos_token": "<e>"})"}},
                   &warnings),
            "[null,null,null]");
  EXPECT_THAT(warnings, Contains(HasSubstr("eos_token is '<e>', whose id")));
  EXPECT_THAT(warnings, Contains(HasSubstr("eos_token_id is not set")));
  EXPECT_EQ(ids_of({}, &warnings), "[null,null,null]");
  EXPECT_THAT(warnings,
              Contains(HasSubstr("eos_token_id, bos_token_id, pad_token_id are not set")));
}

TEST(Export, AnUnigramTokenizerCountsItsList) {
  ExportedModel model("llama", {{"vocab_size", nullptr}});
  model.files->put(
      "tok/tokenizer.json",
      R"({"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2], ["c", 0]]}})");
  ExportOptions options;
  options.tokenizer_folder = "tok";
  EXPECT_EQ(config_of(model.plan(options))["vocab_size"], 3);
}

TEST(Export, ABrokenTokenizerIsCopiedWithAWarning) {
  ExportedModel model("llama");
  model.files->put("tok/tokenizer.json", std::string(100'000, '['));
  ExportOptions options;
  options.tokenizer_folder = "tok";
  const Export result = model.plan(options);
  EXPECT_EQ(result.tokenizer_files.size(), 1u);
  EXPECT_THAT(result.warnings, Contains(HasSubstr("not valid JSON")));
  options.tokenizer_folder = "nowhere";
  EXPECT_THAT(model.failure(ErrorKind::not_found, options), HasSubstr("nowhere"));
}

TEST(Recognise, HuggingFaceFoldersByTheirConfig) {
  auto files = std::make_shared<MemoryFileSystem>();
  const auto fixture = test::read_json(FERRY_FIXTURES "/hf_names/qwen3_moe.json");
  files->put("hf/config.json", fixture["config"].dump());
  Checkpoint checkpoint;
  checkpoint.format = Format::hugging_face;
  checkpoint.path = "hf";
  checkpoint.catalog.edit().file_system = files;
  const ModelSummary summary = recognise(checkpoint);
  EXPECT_EQ(summary.family, "qwen3_moe");
  EXPECT_EQ(summary.experts, 4);
  EXPECT_EQ(summary.head_dim, 8);
  const std::string deepseek = R"({"model_type": "deepseek_v3", "n_routed_experts": 8,
      "num_hidden_layers": 4, "first_k_dense_replace": 1,
      "n_shared_experts": 2, "moe_intermediate_size": 48, "qk_rope_head_dim": 16,
      "qk_nope_head_dim": )";
  files->put("hf/config.json", deepseek + "32}");
  EXPECT_EQ(recognise(checkpoint).shared_expert_ffn_hidden, 96);
  EXPECT_EQ(recognise(checkpoint).head_dim, 48);
  files->put("hf/config.json", deepseek + "9223372036854775807}");
  EXPECT_THAT(recognise(checkpoint).reasons, Contains(HasSubstr("does not fit")));
  files->put("hf/config.json", "[1, 2");
  EXPECT_THAT(recognise(checkpoint).reasons, Contains(HasSubstr("hf/config.json: not JSON")));
}

TEST(EditDistance, CountsEditsUpToALimit) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 10), 3u);
  EXPECT_EQ(edit_distance("", "abc", 10), 3u);
  EXPECT_EQ(edit_distance("same", "same", 10), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 2u);
}

}  // namespace
}  // namespace ferry
