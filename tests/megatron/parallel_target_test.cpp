// Arguments of a target: what follows from its sizes, and what does not fit.
#include "ckpt/megatron/parallel_target.h"

#include <gmock/gmock.h>

#include <map>

#include "ckpt/base/error.h"
#include "ckpt/core/values/draft.h"
#include "ckpt/megatron/pipeline_layout.h"
#include "ckpt/megatron/run_arguments.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using Numbers = std::map<std::string, int64_t>;

LoadedValue arguments(const Numbers& numbers) {
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  for (const auto& [name, number] : numbers) draft.put(args, name, draft.integer(number));
  draft.put(args, "group_query_attention", draft.boolean(numbers.contains("num_query_groups")));
  return std::move(draft).finish(args);
}

Numbers llama() {
  return {{"num_layers", 12},
          {"num_attention_heads", 8},
          {"ffn_hidden_size", 48},
          {"tensor_model_parallel_size", 2},
          {"pipeline_model_parallel_size", 2},
          {"world_size", 8},
          {"data_parallel_size", 2},
          {"transformer_pipeline_model_parallel_size", 2}};
}

Numbers mixtral() {
  Numbers numbers = llama();
  numbers["num_experts"] = 8;
  numbers["moe_ffn_hidden_size"] = 24;
  numbers["expert_model_parallel_size"] = 2;
  return numbers;
}

std::string refusal(const Numbers& numbers, const ParallelTarget& target) {
  try {
    apply_target(arguments(numbers), target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    return error.what();
  }
  return "fits";
}

int64_t number(const LoadedValue& args, std::string_view name) {
  return args.value.get(name).integer().value_or(-1);
}

TEST(ParallelTarget, KeepsWhatIsNotAskedFor) {
  const LoadedValue args = apply_target(arguments(llama()), {});
  for (const auto& [name, value] : llama()) EXPECT_EQ(number(args, name), value) << name;
}

TEST(ParallelTarget, SetsAllThatFollowsFromTheSizes) {
  ParallelTarget target;
  target.tensor = 4;
  target.pipeline = 3;
  target.virtual_pipeline = 2;
  target.context = 2;
  const LoadedValue args = apply_target(arguments(llama()), target);
  EXPECT_EQ(number(args, "world_size"), 48);
  EXPECT_EQ(number(args, "data_parallel_size"), 2);
  EXPECT_EQ(number(args, "transformer_pipeline_model_parallel_size"), 3);
  EXPECT_EQ(number(args, "virtual_pipeline_model_parallel_size"), 2);
  EXPECT_EQ(number(args, "num_layers_per_virtual_pipeline_stage"), 2);
  const RunArguments run = read_run_arguments(args.value);
  EXPECT_EQ(run.tensor, 4);
  EXPECT_EQ(run.context, 2);
  EXPECT_EQ(PipelineLayout(run).at(2, 1).first_layer, 10);
}

TEST(ParallelTarget, DividesThePipelineAnewWhereItsStagesChange) {
  Numbers numbers = llama();
  numbers["virtual_pipeline_model_parallel_size"] = 3;
  numbers["num_layers_per_virtual_pipeline_stage"] = 2;
  numbers["decoder_first_pipeline_num_layers"] = 6;
  ParallelTarget target;
  target.pipeline = 4;
  const LoadedValue args = apply_target(arguments(numbers), target);
  EXPECT_TRUE(args.value.get("virtual_pipeline_model_parallel_size").is_none());
  EXPECT_TRUE(args.value.get("decoder_first_pipeline_num_layers").is_none());
  EXPECT_EQ(number(apply_target(arguments(numbers), {}), "virtual_pipeline_model_parallel_size"),
            3);
}

TEST(ParallelTarget, TakesUnevenStages) {
  ParallelTarget target;
  target.pipeline = 4;
  target.first_stage_layers = 2;
  target.last_stage_layers = 4;
  const RunArguments run = read_run_arguments(apply_target(arguments(llama()), target).value);
  const PipelineLayout layout(run);
  EXPECT_EQ(layout.at(0, 0).layers, 2);
  EXPECT_EQ(layout.at(1, 0).layers, 3);
  EXPECT_EQ(layout.at(3, 0).layers, 4);
}

TEST(ParallelTarget, TakesStagesByLetters) {
  ParallelTarget target;
  target.pipeline = 2;
  target.stage_letters = "Ett|t*4|(t)*5|tL";
  const LoadedValue args = apply_target(arguments(llama()), target);
  EXPECT_EQ(args.value.get("pipeline_model_parallel_layout").string(), "Ett|t*4|(t)*5|tL");
  const PipelineLayout layout(read_run_arguments(args.value));
  EXPECT_EQ(layout.chunks(), 2);
  EXPECT_EQ(layout.at(0, 1).layers, 5);
}

TEST(ParallelTarget, FindsDataRanksForExperts) {
  ParallelTarget target;
  target.tensor = 1;
  target.pipeline = 4;
  target.expert = 8;
  const LoadedValue args = apply_target(arguments(mixtral()), target);
  EXPECT_EQ(number(args, "data_parallel_size"), 8);
  EXPECT_EQ(number(args, "world_size"), 32);
  EXPECT_EQ(number(args, "expert_model_parallel_size"), 8);
}

TEST(ParallelTarget, SplitsExpertsLikeAllElseWhereTheyWere) {
  ParallelTarget target;
  target.tensor = 4;
  EXPECT_EQ(read_run_arguments(apply_target(arguments(mixtral()), target).value).expert_tensor, 4);
  Numbers numbers = mixtral();
  numbers["expert_tensor_parallel_size"] = 1;
  EXPECT_EQ(number(apply_target(arguments(numbers), target), "expert_tensor_parallel_size"), 1);
}

TEST(ParallelTarget, SaysWhichNumberDoesNotFitAndWhichWould) {
  ParallelTarget target;
  target.tensor = 3;
  EXPECT_EQ(refusal(llama(), target),
            "8 attention heads cannot be split over 3 tensor-parallel ranks: for --tp, 1, 2, 4 and "
            "8 fit");
  Numbers grouped = llama();
  grouped["num_query_groups"] = 6;
  target.tensor = 4;
  EXPECT_THAT(refusal(grouped, target), HasSubstr("6 query groups cannot be split over 4"));
  target = {};
  target.pipeline = 5;
  EXPECT_EQ(refusal(llama(), target),
            "12 layers cannot be split over 5 pipeline stages: for --pp, 1, 2, 3, 4, 6 and 12 fit");
  target.pipeline = 4;
  target.virtual_pipeline = 2;
  EXPECT_EQ(
      refusal(llama(), target),
      "12 layers cannot be split over 4 pipeline stages of 2 virtual stages: for --vpp, 1 and 3 "
      "fit");
  target = {};
  target.first_stage_layers = 12;
  target.last_stage_layers = 2;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("14 layers on the first and last"));
  target = {};
  target.expert_tensor = 2;
  EXPECT_EQ(refusal(llama(), target), "--etp 2: the model has no experts");
  target = {};
  target.pipeline = 24;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("cannot be split over 24 pipeline stages"));
}

TEST(ParallelTarget, SaysWhatDoesNotFitTheExperts) {
  ParallelTarget target;
  target.expert = 3;
  EXPECT_EQ(refusal(mixtral(), target),
            "8 experts cannot be split over 3 expert-parallel ranks: for --ep, 1, 2, 4 and 8 fit");
  target.expert = 8;
  target.data = 2;
  EXPECT_THAT(refusal(mixtral(), target), HasSubstr("--dp 8 would fit"));
  target = {};
  target.expert_tensor = 5;
  EXPECT_THAT(refusal(mixtral(), target), HasSubstr("24 rows of moe_ffn_hidden_size"));
  target = {};
  target.expert = 2;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("the model has no experts"));
}

TEST(ParallelTarget, DenseLayersBesideExpertsAreSplitToo) {
  Numbers numbers = mixtral();
  numbers["ffn_hidden_size"] = 50;
  ParallelTarget target;
  target.tensor = 4;
  EXPECT_EQ(refusal(numbers, target), "fits");
  numbers["moe_layer_freq"] = 2;
  EXPECT_THAT(refusal(numbers, target), HasSubstr("50 rows of ffn_hidden_size cannot be split"));
}

TEST(ParallelTarget, RefusesNonsense) {
  ParallelTarget target;
  target.virtual_pipeline = 2;
  target.pipeline = 1;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("at least two pipeline stages"));
  target = {};
  target.stage_letters = "Ett|tL";
  EXPECT_THAT(refusal(llama(), target), HasSubstr("holds 3 decoder"));
  target.stage_letters = "Ett|tt|tL";
  EXPECT_THAT(refusal(llama(), target), HasSubstr("for --pp, 1 and 3 fit"));
  target.first_stage_layers = 2;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("have no place beside it"));
  target = {};
  target.tensor = 8;
  target.pipeline = 12;
  target.data = int64_t{1} << 23;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("more than any run has"));
  EXPECT_THROW(apply_target({}, {}), Error);
}

}  // namespace
}  // namespace ferry
