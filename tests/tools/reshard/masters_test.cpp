// fp32 masters as users meet them: stored as remainders, and in the wrong places.
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Masters : test::Program {
  const std::string whole = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr";
  const std::string shifted = std::string(FERRY_FIXTURES) + "/megatron_shifted/tp2";
};

TEST_F(Masters, AreSplitIntoRemaindersAndJoinedBitForBit) {
  const std::string split = path("split");
  const std::string flags = " --masters remainders --optimizer dp_reshardable --tp 1 --pp 1";
  ASSERT_EQ(ferry("reshard " + whole + " " + split + flags).code, 0);
  const json report = json::parse(ferry("inspect --json " + split).out);
  EXPECT_EQ(report.at("optimizer").at("masters"), "remainders");
  EXPECT_EQ(report.at("by_ferry"), true);
  EXPECT_EQ(ferry("verify " + split).code, 0);
  for (const std::string& run : {whole, split}) {
    const std::string model = run == whole ? path("a") : path("b");
    const std::string words = " --to hf --from-masters --dtype fp32";
    ASSERT_EQ(ferry("convert " + run + " " + model + words).code, 0);
  }
  EXPECT_EQ(ferry("diff " + path("a") + " " + path("b")).code, 0);
  // To where nothing asks for remainders: real masters, and a note.
  const test::Outcome joined =
      ferry("reshard " + split + " " + path("joined") + " --tp 2 --optimizer fully_reshardable");
  ASSERT_EQ(joined.code, 0);
  EXPECT_THAT(joined.out + joined.err, HasSubstr("are written as fp32"));
  EXPECT_EQ(
      json::parse(ferry("inspect --json " + path("joined")).out).at("optimizer").at("masters"),
      "fp32");
}

TEST_F(Masters, AreNothingThatAHuggingFaceModelHas) {
  for (const std::string option : {"--masters fp32", "--repair-masters"}) {
    const test::Outcome refused =
        ferry("reshard " + whole + " " + path("model") + " --to hf " + option);
    EXPECT_EQ(refused.code, 2) << option;
    EXPECT_THAT(refused.err, HasSubstr("a Hugging Face model has no parallel layout"));
    EXPECT_FALSE(std::filesystem::exists(path("model")));
  }
}

TEST_F(Masters, InTheWrongPlacesAreReportedRefusedAndPutBack) {
  const test::Outcome damage = ferry("verify " + shifted);
  EXPECT_EQ(damage.code, 4);
  EXPECT_THAT(damage.out, HasSubstr("decoder.layers.mlp.linear_fc2.weight"));
  EXPECT_THAT(ferry("inspect --check-masters " + shifted).out,
              HasSubstr("decoder.layers.mlp.linear_fc2.weight"));
  EXPECT_EQ(ferry("verify --no-masters " + shifted).code, 0);
  const std::string repaired = path("repaired");
  const test::Outcome refused = ferry("reshard " + shifted + " " + repaired + " --tp 1");
  EXPECT_EQ(refused.code, 6);
  EXPECT_THAT(refused.err, HasSubstr("--repair-masters"));
  EXPECT_FALSE(std::filesystem::exists(repaired));
  const test::Outcome done =
      ferry("reshard " + shifted + " " + repaired + " --tp 1 --repair-masters");
  ASSERT_EQ(done.code, 0);
  EXPECT_THAT(done.out + done.err, HasSubstr("were put back to their places"));
  EXPECT_EQ(ferry("verify " + repaired).code, 0);
}

TEST_F(Masters, ThatAreNotThereAreNamed) {
  const std::string bare = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";
  const test::Outcome outcome =
      ferry("convert " + bare + " " + path("m") + " --to hf --from-masters");
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("holds no fp32 master weights"));
}

}  // namespace
}  // namespace ferry::tool
