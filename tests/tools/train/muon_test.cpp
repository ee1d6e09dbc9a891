// Runs with Muon as users meet them.
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Muon : test::Program {
  const std::string flat = std::string(FERRY_FIXTURES) + "/muon/dense_dpr";
  const std::string files = std::string(FERRY_FIXTURES) + "/muon/dense_files";
};

TEST_F(Muon, IsShownWithTheStatesOfEachPart) {
  for (const std::string& run : {flat, files}) {
    const std::string text = ferry("inspect " + run).out;
    EXPECT_THAT(text, HasSubstr("(muon, layer-wise): momentum_buffer of 4 tensors; exp_avg and"));
    const json optimizer = json::parse(ferry("inspect --json " + run).out).at("optimizer");
    EXPECT_EQ(optimizer.at("kind"), "muon, layer-wise");
    EXPECT_EQ(optimizer.at("states"), json::parse(R"([
        {"states": ["param", "momentum_buffer"], "tensors": 4},
        {"states": ["param", "exp_avg", "exp_avg_sq"], "tensors": 6}])"));
    EXPECT_EQ(optimizer.at("problem"), nullptr);
    EXPECT_EQ(ferry("verify " + run).code, 0);
  }
  const std::string adam = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr";
  const json optimizer = json::parse(ferry("inspect --json " + adam).out).at("optimizer");
  EXPECT_EQ(optimizer.at("kind"), nullptr);
  EXPECT_EQ(optimizer.at("states").size(), 1u);
}

TEST_F(Muon, GoesToRankFoldersAndBackAndToHuggingFace) {
  const test::Outcome made = ferry("reshard " + flat + " " + path("files") + " --to torch --dp 3");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out + made.err, HasSubstr("--no-use-layer-wise-param-layout"));
  for (const char* file : {"/iter_0000005/mp_rank_00/layer_wise_optimizer_2.pt",
                           "/iter_0000005/mp_rank_01/layer_wise_optimizer_0.pt"}) {
    EXPECT_TRUE(std::filesystem::exists(path("files") + file)) << file;
  }
  ASSERT_EQ(ferry("reshard " + path("files") + " " + path("back") + " --tp 1").code, 0);
  EXPECT_EQ(ferry("diff " + flat + " " + path("back")).code, 0);
  EXPECT_EQ(ferry("diff " + flat + " " + files).code, 0);
  const std::string to_hf = " --to hf --from-masters --dtype fp32";
  ASSERT_EQ(ferry("convert " + flat + " " + path("a") + to_hf).code, 0);
  ASSERT_EQ(ferry("convert " + path("files") + " " + path("b") + to_hf).code, 0);
  EXPECT_EQ(ferry("diff " + path("a") + " " + path("b")).code, 0);
}

TEST_F(Muon, WhatMegatronRefusesIsNotWritten) {
  const test::Outcome fsdp = ferry("reshard " + flat + " " + path("a") + " --to fsdp_dtensor");
  EXPECT_EQ(fsdp.code, 5);
  EXPECT_THAT(fsdp.err, HasSubstr("refuses the optimizer muon with Megatron-FSDP"));
  const test::Outcome flags =
      ferry("reshard " + flat + " " + path("a") + " --to torch --optimizer legacy");
  EXPECT_EQ(flags.code, 5);
  EXPECT_THAT(flags.err, HasSubstr("no distrib_optim.pt in a run with muon"));
  EXPECT_FALSE(std::filesystem::exists(path("a")));
}

// One optimizer after the other in model_optim_rng.pt.
TEST_F(Muon, WithoutALayerWiseOptimizerIsThatOfOneRank) {
  const std::string chain = std::string(FERRY_FIXTURES) + "/muon/dense_chain";
  const json optimizer = json::parse(ferry("inspect --json " + chain).out).at("optimizer");
  EXPECT_EQ(optimizer.at("kind"), "muon");
  EXPECT_EQ(optimizer.at("states"), json::parse(R"([
      {"states": ["param", "momentum_buffer"], "tensors": 4},
      {"states": ["param", "exp_avg", "exp_avg_sq"], "tensors": 6}])"));
  EXPECT_EQ(ferry("verify " + chain).code, 0);
  ASSERT_EQ(ferry("reshard " + chain + " " + path("whole") + " --tp 1 --dp 3").code, 0);
  ASSERT_EQ(ferry("reshard " + path("whole") + " " + path("back") + " --to torch --tp 2").code, 0);
  EXPECT_EQ(ferry("diff " + chain + " " + path("back")).code, 0);
  for (const char* form : {"dp_reshardable", "fully_reshardable"}) {
    const test::Outcome made = ferry("reshard " + chain + " " + path("a") + " --optimizer " + form);
    EXPECT_EQ(made.code, 5);
    EXPECT_THAT(made.err, HasSubstr("which a run with muon has only"));
  }
  const std::string to_hf = " --to hf --from-masters --dtype fp32";
  ASSERT_EQ(ferry("convert " + chain + " " + path("b") + to_hf).code, 0);
  ASSERT_EQ(ferry("convert " + flat + " " + path("c") + to_hf).code, 0);
  EXPECT_EQ(ferry("diff " + path("b") + " " + path("c")).code, 0);
}

TEST_F(Muon, IsNoStateThatTheTrainerGoesOnFrom) {
  const std::string words = "train --load " + flat +
                            " --use-checkpoint-args --mock-data --micro-batch-size 1 "
                            "--global-batch-size 1 --train-iters 6 --lr 1e-3 --seq-length 16 "
                            "--override-opt-param-scheduler --eval-iters 0 ";
  const test::Outcome refused = ferry(words);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("its matrices were trained with muon (layer-wise)"));
  EXPECT_EQ(ferry(words + "--no-load-optim").code, 0);
}

}  // namespace
}  // namespace ferry::tool
