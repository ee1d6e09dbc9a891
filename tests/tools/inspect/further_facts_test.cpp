// What `ferry inspect` counts of models whose weights are packed in integers, as AutoGPTQ and
// compressed-tensors save them, and what it says of their quantisation; of layers that predict
// further tokens; of a run's iterations and of who wrote them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;

struct FurtherFacts : Program {
  // A safetensors file of zeros, and config.json next to it.
  void make(const std::vector<std::tuple<std::string, std::string, std::vector<int64_t>>>& tensors,
            const json& quantisation) const {
    json header;
    int64_t end = 0;
    for (const auto& [name, dtype, shape] : tensors) {
      int64_t bytes = dtype == "I64" ? 8 : dtype == "I32" || dtype == "F32" ? 4 : 2;
      for (const int64_t size : shape) bytes *= size;
      header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    const std::string text = header.dump();
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    write(path("model.safetensors"), length + text + std::string(static_cast<size_t>(end), '\0'));
    write(path("config.json"),
          json({{"model_type", "llama"}, {"quantization_config", quantisation}}).dump());
  }
  json inspect() const {
    const Outcome outcome = ferry("inspect --json " + folder.string());
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
};

TEST_F(FurtherFacts, OfGptqHaveTheParametersThatWerePacked) {
  for (const int64_t bits : {4, 8}) {
    make({{"l.qweight", "I32", {64 * bits / 32, 48}},
          {"l.qzeros", "I32", {2, 48 * bits / 32}},
          {"l.scales", "F16", {2, 48}},
          {"l.g_idx", "I32", {64}},
          {"norm.weight", "F16", {64}}},
         {{"quant_method", "gptq"}, {"bits", bits}, {"group_size", 32}});
    const json report = inspect();
    EXPECT_EQ(report["parameters"], 64 * 48 + 64);
    EXPECT_EQ(report["packed"]["parameters"], 64 * 48);
    EXPECT_EQ(report["packed"]["elements"], 64 * 48 * bits / 32);
    EXPECT_EQ(report["packed"]["bits"], bits);
    EXPECT_EQ(report["packed"]["quantisation_elements"], 2 * 48 * bits / 32 + 2 * 48 + 64);
    EXPECT_THAT(report["quantisation"].dump(), HasSubstr("gptq"));
  }
}

// A scale for each row: only config.json has the bits of a value.
TEST_F(FurtherFacts, OfCompressedTensorsHaveTheBitsOfTheirConfiguration) {
  for (const int64_t bits : {4, 8}) {
    const json weights = {{"num_bits", bits}, {"type", "int"}, {"strategy", "channel"}};
    make({{"l.weight_packed", "I32", {48, 64 * bits / 32}},
          {"l.weight_scale", "BF16", {48, 1}},
          {"l.weight_shape", "I64", {2}}},
         {{"quant_method", "compressed-tensors"},
          {"config_groups", {{"group_0", {{"weights", weights}}}}}});
    const json report = inspect();
    EXPECT_EQ(report["parameters"], 64 * 48) << bits;
    EXPECT_EQ(report["packed"]["bits"], bits);
    const Outcome text = ferry("inspect " + folder.string());
    EXPECT_THAT(text.out, HasSubstr(fmt::format("{}-bit values packed in", bits)));
  }
}

// Megatron-LM's names of MTP layers, with those of the model.
TEST_F(FurtherFacts, LayersThatPredictAreShown) {
  make({{"decoder.final_layernorm.weight", "BF16", {32}},
        {"mtp.layers.0.eh_proj.weight", "BF16", {32, 64}},
        {"mtp.layers.0.enorm.weight", "BF16", {32}}},
       {});
  const Outcome outcome = ferry("inspect --json " + path("model.safetensors"));
  const json report = json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(report["parameters"], 32 + 32 * 64 + 32);
  EXPECT_EQ(report["mtp"]["tensors"], 2);
  EXPECT_EQ(report["mtp"]["parameters"], 32 * 64 + 32);
  EXPECT_EQ(report["mtp"]["modules"], json::array({"eh_proj", "enorm"}));
}

TEST_F(FurtherFacts, RunsShowTheirIterationsAndFerryItsOwn) {
  const fs::path source = fs::path(FERRY_FIXTURES) / "megatron/hot_qwen2/iter_0000005";
  for (const char* name : {"run/iter_0000005", "run/iter_0000010"}) {
    fs::create_directories(folder / "run");
    fs::copy(source, folder / name);
  }
  write(path("run/latest_checkpointed_iteration.txt"), "5\n");
  const json report = json::parse(ferry("inspect --json " + path("run")).out, nullptr, false);
  EXPECT_EQ(report["run"]["iterations"], json::array({5, 10}));
  EXPECT_EQ(report["iteration"], 5);
  EXPECT_EQ(report["by_ferry"], false);
  ASSERT_EQ(ferry("reshard " + path("run") + " " + path("out")).code, 0);
  const json written = json::parse(ferry("inspect --json " + path("out")).out, nullptr, false);
  EXPECT_EQ(written["by_ferry"], true);
  EXPECT_THAT(ferry("inspect " + path("out")).out, HasSubstr(", by ferry"));
}

}  // namespace
