// ferry estimate against figures of others: what Megatron-LM's runs counted, what their checkpoints
// weigh, and what descriptions of systems say of models and runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/tools/program.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Estimates : test::Program {
  json estimate(const std::string& words) const {
    const test::Outcome outcome = ferry("estimate --json " + words);
    EXPECT_EQ(outcome.code, 0) << words << "\n" << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }

  static std::string fixture(const std::string& run) {
    return std::string(FERRY_FIXTURES) + "/megatron/" + run;
  }

  // The config.json that a model was published with.
  std::string published(const std::string& model) const {
    const json all = json::parse(read(std::string(FERRY_FIXTURES) + "/published_configs.json"));
    const std::string file = path(model + ".json");
    write(file, all.at(model).at("config").dump());
    return file;
  }
};

// A GPT of the AWS test case, on its eight tensor ranks.
const std::string kGpt =
    " -- --num-layers 36 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
    "--max-position-embeddings 2048 --vocab-size 50257 --tensor-model-parallel-size 8 "
    "--micro-batch-size 1 --train-samples 146484375 --lr-decay-samples 126953125 "
    "--lr-warmup-samples 183105 --lr 6e-5 --min-lr 6e-6 --lr-decay-style cosine --split 98,2,0 "
    "--fp16 --eval-iters 40 --eval-interval 1000 ";

TEST_F(Estimates, CountAsTheRunsLogDid) {
  const json report = estimate(kGpt + "--global-batch-size 288");
  EXPECT_EQ(report.at("stages").at(0).at("parameters_held"), 941'594'624);
  const json& training = report.at("training");
  EXPECT_EQ(training.at("iterations"), 508'626);
  EXPECT_EQ(training.at("micro_batches"), 288);
  EXPECT_EQ(training.at("validation_samples"), 5'863'680);
  EXPECT_EQ(training.at("test_samples"), 11'520);
}

TEST_F(Estimates, LearningRatesAreThoseOfTheLog) {
  const json training = estimate("--at 25 26 27" + kGpt + "--global-batch-size 2").at("training");
  EXPECT_EQ(training.at("iterations"), 73'242'187);
  const char* const expected[] = {"1.638E-08", "1.704E-08", "1.769E-08"};
  for (size_t i = 0; i < 3; ++i) {
    const json& rate = training.at("learning_rates").at(i);
    EXPECT_EQ(rate.at("consumed_samples"), 50 + 2 * i);
    EXPECT_EQ(fmt::format("{:.3E}", rate.at("learning_rate").get<double>()), expected[i]);
  }
}

// 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), which leaves out the last norm's 2 h.
TEST_F(Estimates, SizesOfTheGptModelsOfThePaper) {
  struct Size {
    int64_t heads, hidden, layers;
    const char* billions;
  };
  for (const Size& size :
       {Size{24, 2304, 24, "1.652"}, Size{32, 3072, 30, "3.562"}, Size{32, 4096, 36, "7.468"},
        Size{48, 6144, 40, "18.45"}, Size{64, 8192, 48, "39.10"}, Size{80, 10240, 60, "76.05"},
        Size{96, 12288, 80, "145.62"}, Size{128, 16384, 96, "310.13"}}) {
    const json report = estimate(fmt::format(
        "-- --num-layers {} --hidden-size {} --num-attention-heads {} --seq-length 2048 "
        "--max-position-embeddings 2048 --vocab-size 51200 --bf16",
        size.layers, size.hidden, size.heads));
    const int64_t l = size.layers, h = size.hidden;
    const int64_t formula = 12 * l * h * h + 13 * l * h + (51200 + 2048) * h;
    EXPECT_EQ(report.at("parameters").at("total"), formula + 2 * h);
    const std::string digits = size.billions;
    const auto decimals = static_cast<int>(digits.size() - digits.find('.') - 1);
    EXPECT_EQ(fmt::format("{:.{}f}", static_cast<double>(formula) / 1e9, decimals), digits);
  }
}

TEST_F(Estimates, CheckpointsAreAsLargeAsUsersSaw) {
  const auto with_optimizer = [](const json& report) {
    for (const json& size : report.at("checkpoints")) {
      if (size.at("format") == "torch_dist" && size.at("optimizer") == true) {
        return size.at("bytes").get<double>() / (1 << 30);
      }
    }
    return 0.0;
  };
  const json small = estimate(published("Llama-3.1-8B") + " --bandwidth 10GB");
  EXPECT_EQ(small.at("parameters").at("total"), 8'030'261'248);
  EXPECT_NEAR(with_optimizer(small), 104.7, 0.05);
  EXPECT_NEAR(small.at("checkpoints").at(1).at("seconds").get<double>(), 11.24, 0.01);
  json config = json::parse(read(path("Llama-3.1-8B.json")));
  config.update({{"hidden_size", 8192},
                 {"intermediate_size", 28672},
                 {"num_attention_heads", 64},
                 {"num_hidden_layers", 80}});
  write(path("70b.json"), config.dump());
  const json large = estimate(path("70b.json"));
  EXPECT_EQ(large.at("parameters").at("total"), 70'553'706'496);
  EXPECT_NEAR(with_optimizer(large), 919.9, 0.05);
}

// Lines of Megatron-LM's logs: number of parameters on (tensor, gtp_remat, pipeline) model parallel
// rank; weight and optimizer, which its formula has without positions and biases.
TEST_F(Estimates, RanksHoldWhatMegatronCounted) {
  const std::vector<std::pair<const char*, std::vector<int64_t>>> runs = {
      {"hot_llama", {31520}},
      {"hot_gpt2", {28848}},
      {"hot_apertus", {25960}},
      {"hot_deepseek", {98880}},
      {"hot_mixtral", {66336}},
      {"hot_qwen2", {31488, 31520}},
      {"llama_pp2vpp", {31360, 31392}},
      {"qwen2_pp2", {31488, 31520}},
      {"llama_legacy_tp2pp2", {15744, 15776}},
      {"llama_dp4_dpr_buckets", {62752}},
      {"llama_tp2dp2_dpr", {31520}}};
  for (const auto& [run, counts] : runs) {
    const json stages = estimate(fixture(run)).at("stages");
    ASSERT_EQ(stages.size(), counts.size()) << run;
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(stages.at(i).at("parameters_held"), counts[i]) << run << " " << i;
    }
  }
  const json stage = estimate(fixture("hot_mixtral")).at("stages").at(0);
  const auto state = stage.at("parameters_bytes").get<double>() +
                     stage.at("gradients_bytes").get<double>() +
                     stage.at("optimizer_bytes").get<double>();
  EXPECT_NEAR(state / (1 << 20), 1.14, 0.005);
}

TEST_F(Estimates, CheckpointsAreAsLargeAsTheyAre) {
  for (const char* run :
       {"llama_tp2dp2_dpr", "llama_pp2vpp", "llama_dp4_dpr_buckets", "llama_legacy_tp2pp2",
        "qwen2_pp2", "qwen3moe_te_ep2pp2_dpr", "swiss_llama_tp2pp2", "f32_deepseek", "f32_qwen3"}) {
    const json is = json::parse(ferry("inspect --json " + fixture(run)).out);
    const json report = estimate(fixture(run)).at("checkpoints").at(1);
    EXPECT_EQ(report.at("bytes"), is.at("bytes")) << run;
  }
  for (const char* run : {"hot_llama", "hot_gpt2", "hot_apertus", "hot_deepseek", "hot_mixtral"}) {
    const json is = json::parse(ferry("inspect --json " + fixture(run)).out);
    EXPECT_EQ(estimate(fixture(run)).at("checkpoints").at(0).at("bytes"), is.at("bytes")) << run;
  }
}

TEST_F(Estimates, ModelsHaveTheParametersThatTheyArePublishedWith) {
  EXPECT_EQ(estimate(published("gpt2")).at("parameters").at("without_padding"), 124'439'808);
  const json mixtral = estimate(published("Mixtral-8x7B-v0.1")).at("parameters");
  EXPECT_EQ(mixtral.at("without_padding"), 46'702'792'704);
  EXPECT_EQ(mixtral.at("active"), 12'879'925'248);
  EXPECT_EQ(estimate(published("Qwen2.5-7B")).at("parameters").at("without_padding"),
            7'615'616'512);
}

// Buffers are not parameters. Megatron Bridge's Gemma 4 has values of their own where keys serve.
TEST_F(Estimates, ModelsOfAllFamiliesHaveTheParametersThatTheirTensorsHave) {
  const std::string names = std::string(FERRY_FIXTURES) + "/hf_names";
  for (const auto& file : std::filesystem::directory_iterator(names)) {
    const std::string name = file.path().stem();
    if (name.starts_with("gemma4")) continue;
    const json fixture = json::parse(read(file.path()));
    int64_t expected = 0;
    for (const auto& [tensor, shape] : fixture.at("tensors").items()) {
      constexpr std::string_view kBuffers[] = {"e_score_correction_bias", "expert_bias",
                                               "act_fn.beta", "act_fn.eps"};
      if (std::ranges::any_of(kBuffers, [&](auto end) { return tensor.ends_with(end); })) continue;
      int64_t elements = 1;
      for (const json& size : shape) elements *= size.get<int64_t>();
      expected += elements;
    }
    const std::string config = path("config.json");
    write(config, fixture.at("config").dump());
    EXPECT_EQ(estimate(config).at("parameters").at("without_padding"), expected) << name;
  }
}

TEST_F(Estimates, TheLanguageModelOfAModelOfSeveralParts) {
  const json text =
      json::parse(read(std::string(FERRY_FIXTURES) + "/hf_names/qwen3.json"))["config"];
  const std::string alone = path("alone.json"), inside = path("inside.json");
  write(alone, text.dump());
  write(inside, json({{"model_type", "qwen3_vl"}, {"text_config", text}}).dump());
  const json report = estimate(inside);
  EXPECT_EQ(report.at("parameters"), estimate(alone).at("parameters"));
  EXPECT_THAT(report.at("notes"), testing::Contains(HasSubstr("the language model is estimated")));
}

// What no training said: a model that was converted for several tensor ranks.
TEST_F(Estimates, OfAMixtureThatWasConvertedForTensorRanks) {
  const std::string model = path("model"), run = path("run");
  ASSERT_EQ(ferry("convert " + fixture("hot_mixtral") + " " + model + " --to hf").code, 0);
  ASSERT_EQ(ferry("convert " + model + " " + run + " --to torch_dist --tp 2").code, 0);
  const json report = estimate(run);
  EXPECT_THAT(report.at("notes"), testing::Contains("--sequence-parallel is taken"));
}

TEST_F(Estimates, LaunchesAreEstimatedAsTheyAre) {
  const json gpt = estimate(
      "aws-gpt -- --vocab-size 50257 --tensor-model-parallel-size 8 "
      "--pipeline-model-parallel-size 1");
  EXPECT_EQ(gpt.at("stages").at(0).at("parameters_held"), 941'594'624);
  const json llama = estimate("swiss-ai-70b -- --vocab-size 128256");
  EXPECT_EQ(llama.at("parameters").at("without_padding"), 70'553'706'496);
  EXPECT_EQ(llama.at("ranks").at("world"), 128);
  EXPECT_EQ(llama.at("ranks").at("pipeline"), 8);
  write(path("launch.yaml"),
        "preset: swiss-ai-8b\narguments:\n  vocab-size: 128256\n  num-layers: 16\n");
  EXPECT_EQ(estimate(path("launch.yaml")).at("parameters").at("without_padding"),
            8'030'261'248 - int64_t{16} * 218'112'000);
}

// What a run at two tensor ranks says of itself is not asked of one at another layout.
TEST_F(Estimates, OfARunAtOtherTensorRanks) {
  for (const std::string run : {"hot_llama", "llama_legacy_tp2pp2"}) {
    const json report = estimate(fixture(run) + " -- --tensor-model-parallel-size 1");
    const json own = estimate(fixture(run));
    EXPECT_LT(own.at("stages").at(0).at("parameters_held"),
              report.at("stages").at(0).at("parameters_held"));
  }
}

TEST_F(Estimates, LayoutsFitAndAreOrdered) {
  const std::string model = published("Llama-3.1-8B");
  const json report = estimate(model + " --gpus 16 --gpu-memory 80GB").at("layouts");
  const json& best = report.at("best");
  ASSERT_GE(best.size(), 2u);
  for (size_t i = 0; i < best.size(); ++i) {
    const json& one = best.at(i);
    EXPECT_EQ(one.at("tensor").get<int>() * one.at("pipeline").get<int>() *
                  one.at("context").get<int>() * one.at("data").get<int>(),
              16);
    EXPECT_LE(one.at("bytes").get<double>(), 80e9);
    if (i > 0) {
      EXPECT_GE(best.at(i - 1).at("tokens_per_second"), one.at("tokens_per_second"));
    }
    // The plan that ferry train makes of that layout.
    const json again = estimate(fmt::format(
        "{} --gpus 16 -- --tensor-model-parallel-size {} --pipeline-model-parallel-size {} {} {}",
        model, one.at("tensor").get<int>(), one.at("pipeline").get<int>(),
        one.at("tensor").get<int>() > 1 ? "--sequence-parallel" : "",
        one.at("recompute") == "full" ? "--recompute-granularity full --recompute-method uniform "
                                        "--recompute-num-layers 1"
                                      : ""));
    int64_t most = 0;
    for (const json& stage : again.at("stages")) {
      most = std::max(most, stage.at("total_bytes").get<int64_t>());
    }
    EXPECT_EQ(most, one.at("bytes"));
  }
  const json none = estimate(model + " --gpus 1 --gpu-memory 64GB").at("layouts");
  EXPECT_EQ(none.at("fit"), 0);
  EXPECT_GT(none.at("least_bytes_that_do_not_fit").get<double>(), 64e9);
}

// A toy is faster than anything that was measured: nobody knows how fast.
TEST_F(Estimates, SpeedsThatNobodyMeasuredAreNotGiven) {
  const std::string words = fixture("hot_llama") + " --gpus 8 --gpu-memory 80GB";
  const json report = estimate(words);
  EXPECT_TRUE(report.at("speed").is_null());
  ASSERT_FALSE(report.at("layouts").at("best").empty());
  for (const json& one : report.at("layouts").at("best")) {
    EXPECT_TRUE(one.at("tokens_per_second").is_null());
  }
  EXPECT_THAT(ferry("estimate " + words).out, HasSubstr("unknown"));
}

TEST_F(Estimates, ShortRunsAreGivenInHoursAndMinutes) {
  EXPECT_THAT(ferry("estimate swiss-ai-8b").out, HasSubstr(" min "));
  EXPECT_THAT(ferry("estimate swiss-ai-8b -- --train-iters 1000000").out, HasSubstr(" days on 64"));
}

// What Megatron-LM saved is a member of an enum, which is not used here.
TEST_F(Estimates, TakeNoAttentionBackendFromACheckpoint) {
  EXPECT_THAT(ferry("estimate " + fixture("hot_llama")).out,
              testing::Not(HasSubstr("attention_backend")));
}

TEST_F(Estimates, PagesAreWritten) {
  const std::string page = path("e.html");
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " -o " + page).code, 0);
  EXPECT_THAT(read(page), HasSubstr("Memory of a rank"));
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " -o " + page).code, 2);
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " --overwrite -o " + page).code, 0);
  EXPECT_THAT(ferry("estimate " + fixture("hot_llama")).out, HasSubstr("62,752"));
}

TEST_F(Estimates, RefuseWhatCannotBe) {
  EXPECT_EQ(ferry("estimate").code, 2);
  EXPECT_EQ(ferry("estimate " + path("none")).code, 3);
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " --gpu-memory 80GB").code, 2);
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " --gpus 3").code, 2);
  EXPECT_EQ(ferry("estimate " + fixture("hot_llama") + " --json -o " + path("a")).code, 2);
  EXPECT_EQ(ferry("estimate " + published("Llama-2-7b") + " --gpu tpu").code, 2);
  EXPECT_EQ(ferry("estimate -- --num-layer 2").code, 2);
  EXPECT_EQ(ferry("estimate " + published("Llama-2-7b") + " --bandwidth 0").code, 2);
  EXPECT_THAT(ferry("estimate " + published("Llama-2-7b") + " --at 5").err, HasSubstr("--lr"));
  write(path("bad.json"), "{");
  EXPECT_EQ(ferry("estimate " + path("bad.json")).code, 4);
  write(path("huge.json"), R"({"model_type":"llama","num_hidden_layers":1000000000000})");
  EXPECT_EQ(ferry("estimate " + path("huge.json")).code, 5);
  write(path("args.txt"),
        "--num-layers 2 --hidden-size 9223372036854775807 --num-attention-heads 1 "
        "--seq-length 8 --max-position-embeddings 8 --vocab-size 10");
  EXPECT_EQ(ferry("estimate " + path("args.txt")).code, 2);
}

}  // namespace
}  // namespace ferry::tool
