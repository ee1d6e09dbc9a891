#include "ckpt/megatron/model/args.h"

#include <gtest/gtest.h>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {
namespace {

std::shared_ptr<const Document> args_of(
    const std::vector<std::pair<std::string, int64_t>>& values) {
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  for (const auto& [name, value] : values) draft.put(args, name, draft.integer(value));
  return std::move(draft).finish(args).document;
}

TEST(MegatronArgs, DataParallelSizeIsWhatIsLeft) {
  const auto args = args_of({{"tensor_model_parallel_size", 4},
                             {"pipeline_model_parallel_size", 2},
                             {"context_parallel_size", 2},
                             {"expert_model_parallel_size", 8},
                             {"world_size", 64}});
  const ParallelLayout layout = layout_from_args(args->root());
  EXPECT_EQ(layout.tensor, 4);
  EXPECT_EQ(layout.expert, 8);
  EXPECT_EQ(layout.virtual_pipeline, 0);
  EXPECT_EQ(layout.data, 4);
}

TEST(MegatronArgs, SizesThatDoNotFitLeaveItUnknown) {
  EXPECT_EQ(
      layout_from_args(args_of({{"tensor_model_parallel_size", 3}, {"world_size", 64}})->root())
          .data,
      0);
  const auto hostile = args_of({{"tensor_model_parallel_size", -1},
                                {"pipeline_model_parallel_size", INT64_MIN},
                                {"world_size", INT64_MAX}});
  const ParallelLayout layout = layout_from_args(hostile->root());
  EXPECT_EQ(layout.tensor, 0);
  EXPECT_EQ(layout.pipeline, 0);
  EXPECT_EQ(layout_from_args({}).world_size, 0);
}

TEST(MegatronArgs, ReleaseIsTheNewestArgumentsFirst) {
  EXPECT_EQ(release_from_args({}), "");
  EXPECT_EQ(release_from_args(args_of({{"num_layers", 4}})->root()),
            "Megatron Core 0.11 or earlier");
  EXPECT_EQ(release_from_args(args_of({{"moe_router_dtype", 0}})->root()), "Megatron Core 0.12");
  EXPECT_EQ(release_from_args(args_of({{"moe_router_dtype", 0},
                                       {"dist_ckpt_optim_fully_reshardable", 0},
                                       {"save_retain_interval", 0}})
                                  ->root()),
            "Megatron Core 0.15");
  EXPECT_EQ(release_from_args(args_of({{"ckpt_drop_redundant_extra_state", 0}})->root()),
            "Megatron Core 0.20 or later");
}

ParsedArguments parsed(const std::vector<std::pair<std::string, int64_t>>& values) {
  const auto args = args_of(values);
  return LoadedValue{args, args->root()};
}

TEST(ParsedArguments, AreReadAnewWhenOthersAreAssigned) {
  ParsedArguments args;
  EXPECT_EQ(args.run.tensor, 1);
  EXPECT_EQ(args.run.vocabulary_divisor, 128);
  args = parsed({{"tensor_model_parallel_size", 4}, {"make_vocab_size_divisible_by", 64}});
  EXPECT_EQ(args.run.tensor, 4);
  EXPECT_EQ(args.run.vocabulary_divisor, 64);
  EXPECT_EQ(args.value.get("tensor_model_parallel_size").integer(), 4);
  args = parsed({{"pipeline_model_parallel_size", 2}});
  EXPECT_EQ(args.run.tensor, 1);
  EXPECT_EQ(args.run.pipeline, 2);
  EXPECT_THROW(args = parsed({{"tensor_model_parallel_size", -4}}), Error);
  EXPECT_EQ(args.run.pipeline, 2);
}

}  // namespace
}  // namespace ferry
