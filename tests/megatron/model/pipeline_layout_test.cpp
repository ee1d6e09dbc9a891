#include "ckpt/megatron/model/pipeline_layout.h"

#include <gtest/gtest.h>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

std::string decoder_layers(const PipelineLayout& layout) {
  std::string text;
  for (int64_t stage = 0; stage < layout.stages(); ++stage) {
    for (int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const StageContents& contents = layout.at(stage, chunk);
      text += fmt::format("{}+{}{}{}{} ", contents.first_layer, contents.layers,
                          contents.first ? "E" : "", contents.final_norm ? "n" : "",
                          contents.last ? "L" : "");
    }
    text += "| ";
  }
  return text;
}

RunArguments run(int64_t layers, int64_t pipeline, int64_t virtual_pipeline = 1) {
  RunArguments arguments;
  arguments.layers = layers;
  arguments.pipeline = pipeline;
  arguments.virtual_pipeline = virtual_pipeline;
  return arguments;
}

TEST(PipelineLayout, SplitsEvenlyOverStagesAndVirtualStages) {
  EXPECT_EQ(decoder_layers(PipelineLayout(run(8, 2))), "0+4E | 4+4nL | ");
  EXPECT_EQ(decoder_layers(PipelineLayout(run(8, 2, 2))), "0+2E 4+2 | 2+2 6+2nL | ");
  EXPECT_THROW(PipelineLayout(run(7, 2)), Error);
}

TEST(PipelineLayout, TakesUnevenFirstAndLastStages) {
  RunArguments arguments = run(8, 4);
  arguments.first_stage_layers = 1;
  arguments.last_stage_layers = 3;
  EXPECT_EQ(decoder_layers(PipelineLayout(arguments)), "0+1E | 1+2 | 3+2 | 5+3nL | ");
  arguments = run(10, 2, 2);
  arguments.last_stage_layers = 4;
  EXPECT_EQ(decoder_layers(PipelineLayout(arguments)), "0+3E 5+3 | 3+2 8+2nL | ");
}

TEST(PipelineLayout, CountsEmbeddingAndLossAsLayers) {
  RunArguments arguments = run(6, 2, 2);
  arguments.embedding_is_a_layer = arguments.loss_is_a_layer = true;
  EXPECT_EQ(decoder_layers(PipelineLayout(arguments)), "0+1E 3+2 | 1+2 5+1nL | ");
}

TEST(PipelineLayout, ReadsLayoutText) {
  const StageLetters expected = {"Ettt", "tt", "tt", "tt", "m", "L"};
  EXPECT_EQ(parse_stage_letters("Et*3|(tt|)*3,m|L"), expected);
  EXPECT_THROW(parse_stage_letters("E(t*3"), Error);
  EXPECT_THROW(parse_stage_letters("Exyz"), Error);
  EXPECT_THROW(parse_stage_letters("E(t|)*99999999999999999999L"), Error);
}

TEST(PipelineLayout, SplitsByLayoutText) {
  RunArguments arguments = run(9, 2);
  arguments.mtp_layers = 1;
  arguments.stage_letters = parse_stage_letters("Ettt|(tt|)*2ttm|L|");
  ASSERT_EQ(arguments.stage_letters.size(), 6u);
  const PipelineLayout layout(arguments);
  EXPECT_EQ(layout.chunks(), 3);
  EXPECT_EQ(decoder_layers(layout), "0+3E 5+2 9+0 | 3+2 7+2n 9+0L | ");
  EXPECT_EQ(layout.at(1, 1).mtp_layers, 1);
  arguments.layers = 8;
  EXPECT_THROW(PipelineLayout{arguments}, Error);
}

// As many letters as tokens that it predicts, whatever layers that takes.
TEST(PipelineLayout, HasOneLayerThatPredictsAgainAndAgain) {
  RunArguments arguments = run(4, 2);
  arguments.mtp_layers = 2;
  arguments.repeated_mtp = true;
  EXPECT_EQ(PipelineLayout(arguments).at(1, 0).mtp_layers, 1);
  arguments.stage_letters = parse_stage_letters("Ett|ttmmL");
  EXPECT_EQ(PipelineLayout(arguments).at(1, 0).mtp_layers, 1);
  arguments.stage_letters = parse_stage_letters("Ett|ttmL");
  EXPECT_THROW(PipelineLayout{arguments}, Error);
}

}  // namespace
}  // namespace ferry
