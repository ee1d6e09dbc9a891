// Models that are quantised, under the options of `ferry convert --to hf` and inspect.
// fixtures/wild: fused experts and per-tensor scales by transformers, scales of rows by
// compressed-tensors, E8M0 scales, experts packed as int8, DeepSeek-V4's names.
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
  expect_refused(fixture("wild/qwen3_fp8_e8m0"), "weight_scale_inv (float8_e8m0fnu of [2, 4])");
  expect_refused(fixture("wild/v4_style"), "down_proj.scale (float8_e8m0fnu of [2, 4])");
  for (const char* name : {"int8_experts", "qwen3_fp8_e8m0", "v4_style"}) {
    const Outcome run = ferry("convert " + fixture(std::string("wild/") + name) + " " +
                              path("run") + " --to torch_dist --dtype bf16");
    EXPECT_EQ(run.code, 5) << run.err;
    EXPECT_FALSE(fs::exists(path("run")));
  }
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
  write(model + "/hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
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
}

}  // namespace
