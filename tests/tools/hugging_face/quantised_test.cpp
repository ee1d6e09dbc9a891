// Models that are quantised, under the options of `ferry convert --to hf` and inspect.
// fixtures/wild: fused experts and per-tensor scales by transformers, scales of rows by
// compressed-tensors, E8M0 scales, experts packed as int8, DeepSeek-V4's names. fixtures/quantised:
// one model in every form, by the programs that define them, and what values they make of it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/base/cast.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
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
using testing::Not;

struct Weight {
  DType dtype;
  Dims shape;
  std::vector<float> values;
};

std::map<std::string, Weight> weights_in(const std::string& folder) {
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), folder);
  std::map<std::string, Weight> weights;
  for (const ferry::Entry& entry : checkpoint.catalog->entries) {
    const std::string bytes = ferry::read_tensor(checkpoint.catalog, entry, 1 << 20);
    Weight& weight = weights[entry.name];
    weight = {entry.dtype, entry.shape, {}};
    const auto size = static_cast<size_t>(ferry::size_bytes(entry.dtype));
    for (size_t at = 0; at < bytes.size(); at += size) {
      weight.values.push_back(static_cast<float>(ferry::load_as_double(
          reinterpret_cast<const std::byte*>(bytes.data() + at), entry.dtype)));
    }
  }
  return weights;
}

float as_bf16(float value) {
  std::byte bytes[2];
  ferry::convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32, bytes, 0, DType::bf16,
                 1);
  return static_cast<float>(ferry::load_as_double(bytes, DType::bf16));
}

struct Quantised : Program {
  Outcome convert(const std::string& from, const std::string& options) const {
    return ferry("convert " + from + " " + path("out") + " --overwrite --to hf " + options);
  }
  json config() const { return json::parse(read(path("out/config.json"))); }
  std::string copied(const std::string& name) const {
    fs::copy(fixture("wild/" + name), path("model"), fs::copy_options::recursive);
    return path("model");
  }
  // Renames tensors in the header of a file: names of equal length.
  void rename(const std::string& model, const std::string& from, const std::string& to) const {
    std::string bytes = read(model + "/model.safetensors");
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    write(model + "/model.safetensors", bytes.replace(at, from.size(), to));
  }
  void expect_refused(const std::string& from, const std::string& what) const {
    for (const char* options : {"--dtype bf16", "--quantize fp8", "--dtype bf16 --quantize fp8"}) {
      const Outcome outcome = convert(from, options);
      EXPECT_EQ(outcome.code, 5) << options << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(what)) << options;
      EXPECT_FALSE(fs::exists(path("out")));
    }
    const Outcome moved = convert(from, "");
    ASSERT_EQ(moved.code, 0) << moved.err;
    EXPECT_EQ(read(path("out/config.json")), read(from + "/config.json"));
    EXPECT_EQ(weights_in(path("out")).size(), weights_in(from).size());
    fs::remove_all(path("out"));
  }
};

// Every element is its own times its block's scale, and nothing but values is left.
void expect_values(const std::string& folder, const std::string& out, const std::string& scale_end,
                   const Dims& block) {
  const auto from = weights_in(folder), to = weights_in(out);
  size_t checked = 0;
  for (const auto& [name, weight] : to) {
    EXPECT_EQ(weight.dtype, DType::bf16) << name;
    const Weight& stored = from.at(name);
    const auto scales = from.find(name + scale_end);
    if (scales == from.end()) {
      EXPECT_EQ(stored.values, weight.values) << name;
      continue;
    }
    ++checked;
    const Dims& shape = stored.shape;
    const size_t columns = static_cast<size_t>(shape.back());
    const size_t rows = static_cast<size_t>(shape[shape.size() - 2]);
    const size_t block_rows = block[0] > 0 ? static_cast<size_t>(block[0]) : rows;
    const size_t block_columns = block[1] > 0 ? static_cast<size_t>(block[1]) : columns;
    const size_t across = (columns + block_columns - 1) / block_columns;
    const size_t down = (rows + block_rows - 1) / block_rows;
    for (size_t i = 0; i < stored.values.size(); ++i) {
      const size_t expert = i / (rows * columns), row = i / columns % rows, column = i % columns;
      const size_t at = (expert * down + row / block_rows) * across + column / block_columns;
      ASSERT_EQ(weight.values[i], as_bf16(stored.values[i] * scales->second.values.at(at)))
          << name << " " << i;
    }
  }
  EXPECT_GT(checked, 0u);
}

TEST_F(Quantised, FusedExpertsHaveScalesOfThreeAxes) {
  const std::string model = fixture("wild/qwen3_moe_fp8_fused");
  ASSERT_EQ(convert(model, "--dtype bf16").code, 0);
  expect_values(model, path("out"), "_scale_inv", {32, 32});
  EXPECT_FALSE(config().contains("quantization_config"));
  // The run that is made of it is the one that is made of its values.
  ASSERT_EQ(ferry("convert " + model + " " + path("a") + " --to torch_dist --dtype bf16").code, 0);
  ASSERT_EQ(ferry("convert " + path("out") + " " + path("b") + " --to torch_dist").code, 0);
  EXPECT_EQ(ferry("diff " + path("a") + " " + path("b")).code, 0);
}

TEST_F(Quantised, ScalesOfRowsAndOfTensorsAreBlocks) {
  const std::string rows = fixture("wild/qwen3_ct_fp8");
  ASSERT_EQ(convert(rows, "--dtype bf16").code, 0);
  expect_values(rows, path("out"), "_scale", {1, 0});
  EXPECT_FALSE(config().contains("quantization_config"));
  const std::string whole = fixture("wild/qwen3_fp8_tensor");
  const Outcome outcome = convert(whole, "--dtype bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_values(whole, path("out"), "_scale_inv", {0, 0});
  EXPECT_THAT(outcome.out, HasSubstr("28 scales of activations and caches are left out"));
  EXPECT_FALSE(config().contains("quantization_config"));
}

TEST_F(Quantised, RunsAreMadeOfEveryFormOfFp8) {
  for (const char* name : {"qwen3_ct_fp8", "qwen3_fp8_tensor"}) {
    const std::string model = fixture(std::string("wild/") + name);
    fs::remove_all(path("a"));
    fs::remove_all(path("b"));
    ASSERT_EQ(ferry("convert " + model + " " + path("a") + " --to torch_dist --dtype bf16").code,
              0);
    ASSERT_EQ(convert(model, "--dtype bf16").code, 0);
    ASSERT_EQ(ferry("convert " + path("out") + " " + path("b") + " --to torch_dist").code, 0);
    EXPECT_EQ(ferry("diff " + path("a") + " " + path("b")).code, 0) << name;
  }
}

TEST_F(Quantised, WhatCannotBecomeValuesIsRefusedByWhatWasFound) {
  expect_refused(fixture("wild/int8_experts"),
                 "mlp.experts.0.down_proj.weight (int8 of [64, 16]) with scales "
                 "model.layers.1.mlp.experts.0.down_proj.weight_scale_inv (float32 of [64, 1])");
  const Outcome run = ferry("convert " + fixture("wild/int8_experts") + " " + path("run") +
                            " --to torch_dist --dtype bf16");
  EXPECT_EQ(run.code, 5) << run.err;
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(Quantised, ExponentsAreScales) {
  const std::string model = fixture("wild/qwen3_fp8_e8m0");
  ASSERT_EQ(convert(model, "--dtype bf16").code, 0);
  expect_values(model, path("out"), "_scale_inv", {32, 32});
  // DeepSeek-V4's: fp8 in blocks of 32 x 32, and experts of 4 bits.
  const Outcome outcome = convert(fixture("wild/v4_style"), "--dtype bf16");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(ferry("inspect " + fixture("wild/v4_style")).out, HasSubstr("MXFP4 ("));
}

constexpr const char* kQwen3Forms[] = {"fp8",   "fp8-ue8m0", "fp8-channel", "fp8-tensor",
                                       "mxfp8", "mxfp4",     "nvfp4",       "nvfp4-packed",
                                       "int4",  "int4-g128", "int4-zp",     "int4-g128-zp"};

uint64_t hash_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// The bytes of each tensor, and its type and shape in front.
std::map<std::string, std::string> bytes_by_name(const std::string& folder) {
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), folder);
  std::map<std::string, std::string> tensors;
  for (const ferry::Entry& entry : checkpoint.catalog->entries) {
    tensors[entry.name] =
        fmt::format("{} {} ", ferry::torch_name(entry.dtype), ferry::to_string(entry.shape)) +
        ferry::read_tensor(checkpoint.catalog, entry, 1 << 20);
  }
  return tensors;
}

TEST_F(Quantised, EveryFormIsReadAsItsProgramReadsIt) {
  std::vector<std::string> forms(std::begin(kQwen3Forms), std::end(kQwen3Forms));
  forms.push_back("mxfp4-gpt-oss");
  for (const std::string& form : forms) {
    const std::string model = fixture("quantised/" + form);
    const Outcome outcome = convert(model, "--dtype bf16");
    ASSERT_EQ(outcome.code, 0) << form << outcome.err;
    EXPECT_FALSE(config().contains("quantization_config")) << form;
    const json truth = json::parse(read(model + "/truth.json"));
    EXPECT_GT(truth.size(), 1u);
    const auto tensors = bytes_by_name(path("out"));
    for (const auto& [name, hash] : truth.items()) {
      std::string bytes = tensors.at(name);
      bytes.erase(0, bytes.find(']') + 2);
      for (size_t i = 0; form == "nvfp4" && i < bytes.size(); i += 2) {  // its table has one zero
        if (bytes[i] == 0 && bytes[i + 1] == '\x80') bytes[i + 1] = 0;
      }
      EXPECT_EQ(fmt::format("{:016x}", hash_of(bytes)), hash.get<std::string>()) << form << name;
    }
    EXPECT_EQ(tensors.size(),
              weights_in(fixture("quantised/" +
                                 std::string(form == "mxfp4-gpt-oss" ? "gpt_oss" : "model")))
                  .size());
  }
}

TEST_F(Quantised, EveryFormIsWrittenAsItsProgramWritesIt) {
  std::vector<std::string> forms(std::begin(kQwen3Forms), std::end(kQwen3Forms));
  forms.push_back("mxfp4-gpt-oss");
  for (const std::string& form : forms) {
    const std::string model =
        fixture(form == "mxfp4-gpt-oss" ? "quantised/gpt_oss" : "quantised/model");
    const Outcome outcome = convert(model, "--quantize " + form);
    ASSERT_EQ(outcome.code, 0) << form << outcome.err;
    const auto expected = bytes_by_name(fixture("quantised/" + form)),
               found = bytes_by_name(path("out"));
    EXPECT_EQ(found.size(), expected.size()) << form;
    for (const auto& [name, bytes] : expected) {
      ASSERT_TRUE(found.contains(name)) << form << " " << name;
      EXPECT_TRUE(found.at(name) == bytes) << form << " " << name;
    }
    const json made = config()["quantization_config"];
    const json stated =
        json::parse(read(fixture("quantised/" + form + "/config.json")))["quantization_config"];
    EXPECT_EQ(made["quant_method"], stated["quant_method"]);
    EXPECT_EQ(made.value("format", json()), stated.value("format", json())) << form;
    EXPECT_FALSE(made.contains("kv_cache_scheme") && !made["kv_cache_scheme"].is_null());
    EXPECT_EQ(fs::exists(path("out/hf_quant_config.json")), form == "nvfp4");
  }
}

TEST_F(Quantised, RunsOfPackedWeightsAreThoseOfTheirValues) {
  for (const char* form : {"mxfp4", "nvfp4", "nvfp4-packed", "int4-g128-zp", "mxfp4-gpt-oss"}) {
    const std::string model = fixture(std::string("quantised/") + form);
    fs::remove_all(path("a"));
    fs::remove_all(path("b"));
    ASSERT_EQ(ferry("convert " + model + " " + path("a") + " --to torch_dist --tp 1").code, 0);
    ASSERT_EQ(convert(model, "--dtype bf16").code, 0);
    ASSERT_EQ(ferry("convert " + path("out") + " " + path("b") + " --to torch_dist").code, 0);
    EXPECT_EQ(ferry("diff " + path("a") + " " + path("b")).code, 0) << form;
    // Quantised models are compared with others by their values.
    const Outcome diff = ferry("diff " + model + " " + path("out"));
    EXPECT_EQ(diff.code, 0) << diff.out << diff.err;
    EXPECT_THAT(diff.out, HasSubstr("quantised weights are compared by their values"));
    const char* plain = std::string(form).ends_with("oss") ? "gpt_oss" : "model";
    EXPECT_EQ(ferry("diff " + model + " " + fixture("quantised/") + plain).code, 1) << form;
    EXPECT_EQ(ferry("verify " + model).code, 0);
  }
}

// A run is quantised as the model that it becomes.
TEST_F(Quantised, RunsAreQuantisedOnTheWay) {
  const std::string gpt_oss = fixture("quantised/gpt_oss");
  ASSERT_EQ(ferry("convert " + gpt_oss + " " + path("gpt-oss") + " --to torch_dist").code, 0);
  const Outcome outcome = convert(path("gpt-oss"), "--quantize mxfp4-gpt-oss");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(bytes_by_name(path("out")) == bytes_by_name(fixture("quantised/mxfp4-gpt-oss")));
  const std::string model = fixture("quantised/model");
  ASSERT_EQ(ferry("convert " + model + " " + path("run") + " --to torch_dist").code, 0);
  for (const char* form : {"nvfp4", "int4-zp", "mxfp8"}) {
    ASSERT_EQ(convert(path("run"), std::string("--quantize ") + form).code, 0);
    const auto found = bytes_by_name(path("out"));
    for (const auto& [name, bytes] : bytes_by_name(fixture(std::string("quantised/") + form))) {
      EXPECT_TRUE(found.contains(name) && found.at(name) == bytes) << form << " " << name;
    }
  }
}

TEST_F(Quantised, UnknownFamiliesAreQuantisedByNamesAndShapes) {
  fs::copy(fixture("quantised/model"), path("model"), fs::copy_options::recursive);
  json description = json::parse(read(path("model/config.json")));
  description["model_type"] = "unheard_of";
  description["architectures"] = {"UnheardOfForCausalLM"};
  write(path("model/config.json"), description.dump());
  const Outcome outcome = convert(path("model"), "--quantize int4-g128");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("2 weights are not quantised, as their rows are not a multiple "
                        "of 128"));
  EXPECT_TRUE(bytes_by_name(path("out")) == bytes_by_name(fixture("quantised/int4-g128")));
  const Outcome back =
      ferry("convert " + path("out") + " " + path("back") + " --to hf --dtype bf16");
  EXPECT_EQ(back.code, 0) << back.err;
}

TEST_F(Quantised, FormsThatDoNotFitAreRefused) {
  const std::string model = fixture("quantised/model");
  EXPECT_THAT(convert(model, "--quantize mxfp4-gpt-oss").err, HasSubstr("is not a gpt-oss"));
  EXPECT_THAT(convert(model, "--quantize int3").err, HasSubstr("int4-g128"));
  EXPECT_THAT(convert(fixture("quantised/int4"), "--quantize fp8").err,
              HasSubstr("are quantised (compressed-tensors, pack-quantized"));
}

// Parts that are missing, or belong to another model, are found before anything is written.
TEST_F(Quantised, DamagedPartsAreRefused) {
  const auto failure = [&](const std::string& form, const std::string& from,
                           const std::string& to) {
    fs::remove_all(path("model"));
    fs::copy(fixture("quantised/" + form), path("model"), fs::copy_options::recursive);
    rename(path("model"), from, to);
    const Outcome outcome = convert(path("model"), "--dtype bf16 --as-is");
    const Outcome again = convert(path("model"), "--dtype bf16");
    EXPECT_FALSE(fs::exists(path("out"))) << form << to;
    EXPECT_THAT(again.code, testing::AnyOf(5, 6)) << form << to << again.err;
    return again.err;
  };
  EXPECT_THAT(failure("mxfp4", "k_proj.weight_scale\"", "k_proj.weight_scals\""),
              HasSubstr("has no scales of them"));
  EXPECT_THAT(failure("nvfp4-packed", "k_proj.weight_packed", "k_proj.weight_packes"),
              HasSubstr("the weight that they belong to is missing"));
  // The scales of another weight: of twice as many rows.
  EXPECT_THAT(failure("mxfp4", "\"shape\":[16,4]", "\"shape\":[4,16]"), HasSubstr("of shape"));
  EXPECT_THAT(
      failure("int4-zp", "\"dtype\":\"I32\",\"shape\":[2,4]", "\"dtype\":\"I32\",\"shape\":[4,2]"),
      HasSubstr("its zero points"));
  EXPECT_THAT(failure("mxfp4-gpt-oss", "\"shape\":[2,64,2,16]", "\"shape\":[2,64,16,2]"),
              HasSubstr("should be"));
}

TEST_F(Quantised, ScalesOfNoWeightAreDamage) {
  const std::string model = copied("qwen3_ct_fp8");
  rename(model, "0.mlp.down_proj.weight\"", "0.mlp.down_proj.weighs\"");
  const Outcome outcome = convert(model, "--dtype bf16");
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("down_proj.weight_scale (bfloat16 of [64, 1]) holds scales"));
}

TEST_F(Quantised, ConfigurationsThatSayOtherwiseAreReported) {
  const std::string model = copied("qwen3_ct_fp8");
  json config = json::parse(read(model + "/config.json"));
  config.erase("quantization_config");
  write(model + "/config.json", config.dump());
  EXPECT_THAT(convert(model, "").out, HasSubstr("config.json has no quantization_config"));
  const std::string plain = path("plain");
  ASSERT_EQ(
      ferry("convert " + fixture("wild/qwen3_ct_fp8") + " " + plain + " --to hf --dtype bf16").code,
      0);
  config = json::parse(read(plain + "/config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  write(plain + "/config.json", config.dump());
  EXPECT_THAT(convert(plain, "").out, HasSubstr("quantised by fp8, blocks of [128, 128], but no"));
}

TEST_F(Quantised, ModelOptsOwnFileGoesWithTheQuantisation) {
  const std::string model = copied("qwen3_fp8_tensor");
  json config = json::parse(read(model + "/config.json"));
  config.erase("quantization_config");
  write(model + "/config.json", config.dump());
  write(model + "/hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  EXPECT_THAT(ferry("inspect " + model).out, HasSubstr("modelopt, FP8"));
  ASSERT_EQ(convert(model, "").code, 0);
  EXPECT_TRUE(fs::exists(path("out/hf_quant_config.json")));
  ASSERT_EQ(convert(model, "--dtype bf16").code, 0);
  EXPECT_FALSE(fs::exists(path("out/hf_quant_config.json")));
  write(model + "/hf_quant_config.json", R"({"quantization": {"quant_algo": "W4A16_AWQ"}})");
  EXPECT_EQ(convert(model, "--dtype bf16").code, 5);
}

TEST_F(Quantised, CodesAreNotCastWithoutTheirScales) {
  const std::string file = fixture("wild/qwen3_ct_fp8/model.safetensors");
  const std::string command = "convert " + file + " " + path("out") + " --to safetensors";
  const Outcome refused = ferry(command + " --dtype bf16");
  EXPECT_EQ(refused.code, 5) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("is quantised"));
  EXPECT_EQ(ferry(command).code, 0);
}

TEST_F(Quantised, ParametersAreCountedWithoutWhatSurroundsThem) {
  const auto inspect = [&](const std::string& name) {
    return json::parse(ferry("inspect --json " + fixture("wild/" + name)).out, nullptr, false);
  };
  const json fused = inspect("qwen3_moe_fp8_fused");
  EXPECT_EQ(fused["parameters"], 281280);
  EXPECT_EQ(inspect("qwen3_ct_fp8")["parameters"], 180928);
  EXPECT_EQ(inspect("qwen3_fp8_tensor")["parameters"], 180928);
  EXPECT_EQ(inspect("v4_style")["parameters"], 276760);
  const json int8 = inspect("int8_experts");
  EXPECT_EQ(int8["parameters"], 129304);
  EXPECT_EQ(int8["packed"]["integers"], 73728);
  EXPECT_EQ(int8["model"]["mtp_layers"], 0);
  EXPECT_THAT(ferry("inspect " + fixture("wild/int8_experts")).out,
              Not(HasSubstr("ffn 128, 1 MTP")));
  EXPECT_THAT(convert(fixture("wild/int8_experts"), "").out,
              HasSubstr("129,304 parameters, 73,728 integers of quantised weights"));
  EXPECT_THAT(convert(fixture("wild/qwen3_moe_fp8_fused"), "").out,
              HasSubstr("281,280 parameters,"));
  const auto in_form = [](const std::string& name) { return fixture("quantised/" + name); };
  const json plain = json::parse(ferry("inspect --json " + in_form("model")).out);
  for (const char* form : kQwen3Forms) {
    const json packed = json::parse(ferry("inspect --json " + in_form(form)).out);
    EXPECT_EQ(packed["parameters"], plain["parameters"]) << form;
  }
  EXPECT_THAT(ferry("inspect " + in_form("nvfp4")).out, HasSubstr("NVFP4 (7 weights)"));
  EXPECT_THAT(ferry("inspect " + in_form("int4-zp")).out, HasSubstr("int4 (7 weights)"));
}

}  // namespace
