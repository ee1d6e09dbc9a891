// Arguments of a target: what follows from its sizes, and what does not fit.
#include <gmock/gmock.h>

#include <map>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/model/target_options.h"

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

std::string refusal(const LoadedValue& args, const ParallelTarget& target) {
  try {
    apply_target(args, target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    return error.what();
  }
  return "fits";
}

std::string refusal(const Numbers& numbers, const ParallelTarget& target) {
  return refusal(arguments(numbers), target);
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
            "8 attention heads cannot be split over 3 tensor-parallel ranks: for options.tensor, "
            "1, 2, 4 and "
            "8 fit");
  Numbers grouped = llama();
  grouped["num_query_groups"] = 6;
  target.tensor = 4;
  EXPECT_THAT(refusal(grouped, target), HasSubstr("6 query groups cannot be split over 4"));
  target = {};
  target.pipeline = 5;
  EXPECT_EQ(refusal(llama(), target),
            "12 layers cannot be split over 5 pipeline stages: for options.pipeline, 1, 2, 3, 4, 6 "
            "and 12 fit; "
            "for 5 uneven stages: options.first_stage_layers=4 (each other stage has 2), "
            "options.last_stage_layers=4 (each other stage has 2), or "
            "options.stage_letters='Ett|ttt|ttt|tt|ttL'");
  target.pipeline = 4;
  target.virtual_pipeline = 2;
  EXPECT_EQ(refusal(llama(), target),
            "12 layers cannot be split over 4 pipeline stages of 2 virtual stages: for "
            "options.virtual_pipeline, 1 and 3 "
            "fit; for 4 uneven stages: options.first_stage_layers=6 (each other stage has 2), "
            "options.last_stage_layers=6 (each other stage has 2), or "
            "options.stage_letters='Et|tt|tt|tt|tt|t|t|tL' without options.virtual_pipeline");
  target = {};
  target.first_stage_layers = 12;
  target.last_stage_layers = 2;
  EXPECT_EQ(refusal(llama(), target),
            "12 layers, 14 of them on the first and last stage, cannot be split over 2 pipeline "
            "stages: for options.pipeline, none fits; with options.pipeline=2, for the first and "
            "last stage together, 12 "
            "fits");
  target = {};
  target.pipeline = 3;
  target.first_stage_layers = 9;
  EXPECT_EQ(refusal(llama(), target),
            "12 layers, 9 of them on the first stage, cannot be split over 3 pipeline stages: for "
            "options.pipeline, 2 and 4 fit; with options.pipeline=3, for the first stage, 2, 4, 6, "
            "8 and 10 fit");
  target = {};
  target.expert_tensor = 2;
  EXPECT_EQ(refusal(llama(), target), "options.expert_tensor=2: the model has no experts");
  target = {};
  target.pipeline = 24;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("cannot be split over 24 pipeline stages"));
}

TEST(ParallelTarget, StagesInTheMiddleHaveLayers) {
  ParallelTarget target;
  target.first_stage_layers = 12;  // none is left for the second stage
  EXPECT_THAT(refusal(llama(), target), HasSubstr("12 of them on the first stage"));
  target.pipeline = 1;
  EXPECT_EQ(refusal(llama(), target), "fits");
  target.last_stage_layers = 0;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("cannot be split over 1 pipeline stages"));
}

TEST(ParallelTarget, VirtualStagesLeaveUnevenStagesAsTheyAre) {
  Numbers numbers = llama();
  numbers["decoder_first_pipeline_num_layers"] = 4;
  ParallelTarget target;
  target.virtual_pipeline = 2;
  LoadedValue args = apply_target(arguments(numbers), target);
  EXPECT_EQ(number(args, "decoder_first_pipeline_num_layers"), 4);
  EXPECT_EQ(number(args, "num_virtual_stages_per_pipeline_rank"), 2);
  EXPECT_EQ(PipelineLayout(read_run_arguments(args.value)).at(0, 1).layers, 2);
  target.last_stage_layers = 8;
  args = apply_target(arguments(numbers), target);
  EXPECT_EQ(number(args, "decoder_first_pipeline_num_layers"), 4);
  EXPECT_EQ(number(args, "decoder_last_pipeline_num_layers"), 8);
}

TEST(ParallelTarget, LettersSayHowManyVirtualStagesThereAre) {
  ParallelTarget target;
  target.stage_letters = "Ettt|ttt|ttt|tttL";
  target.virtual_pipeline = 3;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("options.virtual_pipeline=3 contradicts"));
  target.virtual_pipeline = 2;
  const LoadedValue args = apply_target(arguments(llama()), target);
  // The run's own letters stay, or are replaced by others.
  target = {};
  target.virtual_pipeline = 2;
  EXPECT_EQ(apply_target(args, target).value.get("pipeline_model_parallel_layout").string(),
            "Ettt|ttt|ttt|tttL");
  target.virtual_pipeline = 1;
  try {
    apply_target(args, target);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("are options.virtual_pipeline=2"));
  }
  target.pipeline = 2;  // anew
  EXPECT_TRUE(apply_target(args, target).value.get("pipeline_model_parallel_layout").is_none());
}

TEST(ParallelTarget, TakesLettersThatMegatronTakes) {
  Numbers numbers = llama();
  numbers["mtp_num_layers"] = 2;
  ParallelTarget target;
  const auto said = [&](const std::string& letters) {
    target.stage_letters = letters;
    return refusal(numbers.contains("mtp_num_layers") ? numbers : llama(), target);
  };
  EXPECT_EQ(said("Et*6|t*6mmL"), "fits");
  EXPECT_EQ(said("Et*3|t*3|t*6mm|L"), "fits");
  EXPECT_THAT(said("Et*3|t*3mm|t*6|L"), HasSubstr("m comes before t"));
  EXPECT_THAT(said("Et*6|t*6mm||L"), HasSubstr("m is in stage 2"));
  EXPECT_THAT(said("Et*6|t*6|m|mL"), HasSubstr("m is in several stages"));
  numbers.clear();
  EXPECT_THAT(said("L|Et*12"), HasSubstr("L comes first; that is for E"));
  EXPECT_THAT(said("Et*6|t*3Lt*3"), HasSubstr("t comes last; that is for L"));
  EXPECT_THAT(said("t*6|t*6L"), HasSubstr("it has E 0 times"));
  EXPECT_THAT(said("Et*6|t*6"), HasSubstr("it has L 0 times"));
  EXPECT_THAT(said("Et*6|t*6LL"), HasSubstr("it has L 2 times"));
}

TEST(ParallelTarget, SaysWhatIsWrongWithLetters) {
  ParallelTarget target;
  for (const auto& [letters, what] :
       {std::pair{"garbage", "'g' is not allowed there"},
        std::pair{"Et\xC3\xA4L", "'\xC3\xA4' is not allowed"},
        std::pair{"E(t|*3L", "a ( without )"}, std::pair{"Et*L", "'*' is not allowed there"},
        std::pair{"Et*9999999999|L", "it repeats to more than"}}) {
    target.stage_letters = letters;
    EXPECT_THAT(refusal(llama(), target),
                testing::AllOf(HasSubstr(what), HasSubstr("E embedding, t decoder")));
  }
}

TEST(ParallelTarget, ContextRanksTakeTwoPartsOfTheSequence) {
  Numbers numbers = llama();
  numbers["seq_length"] = 24;
  ParallelTarget target;
  target.context = 8;
  EXPECT_EQ(refusal(numbers, target),
            "sequences of 24 tokens cannot be split over 8 context-parallel ranks, two parts each: "
            "for options.context, 1, 2, 3, 4, 6 and 12 fit");
  target.context = 4;
  EXPECT_EQ(refusal(numbers, target), "fits");
}

TEST(ParallelTarget, SaysWhatDoesNotFitTheExperts) {
  ParallelTarget target;
  target.expert = 3;
  EXPECT_EQ(refusal(mixtral(), target),
            "8 experts cannot be split over 3 expert-parallel ranks: for options.expert, 1, 2, 4 "
            "and 8 fit");
  target.expert = 8;
  target.data = 2;
  EXPECT_THAT(refusal(mixtral(), target), HasSubstr("options.data=8 would fit"));
  target = {};
  target.expert_tensor = 5;
  EXPECT_THAT(refusal(mixtral(), target), HasSubstr("24 rows of moe_ffn_hidden_size"));
  target = {};
  target.expert = 2;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("the model has no experts"));
}

// 12 layers: 0, 1 and 2 have indexers, then 6 and 10.
LoadedValue with_shared_indexers() {
  Draft draft;
  const Value args = draft.copy(arguments(llama()).value);
  draft.put(args, "experimental_attention_variant", draft.string("dsa"));
  draft.put(args, "dsa_indexer_n_heads", draft.integer(2));
  draft.put(args, "dsa_indexer_topk_freq", draft.integer(4));
  draft.put(args, "dsa_indexer_skip_topk_offset", draft.integer(3));
  return std::move(draft).finish(args);
}

TEST(ParallelTarget, StagesBeginWithLayersThatHaveAnIndexer) {
  ParallelTarget target;
  target.pipeline = 2;
  target.virtual_pipeline = 1;
  EXPECT_EQ(refusal(with_shared_indexers(), target), "fits");  // the second begins with 6
  target.first_stage_layers = 5;
  EXPECT_EQ(refusal(with_shared_indexers(), target),
            "stage 2 would begin with decoder.layers.5, which attends to what the indexer of an "
            "earlier layer chose, and Megatron-LM does not hand that on to another stage; for the "
            "first layer of a stage, 0, 1, 2, 6 and 10 fit: options.stage_letters='Et*6|t*6L'");
  target.first_stage_layers.reset();
  target.virtual_pipeline = 2;
  EXPECT_THAT(
      refusal(with_shared_indexers(), target),
      testing::AllOf(HasSubstr("stage 2 of virtual stage 1 would begin with decoder.layers.3,"),
                     HasSubstr("options.stage_letters='Ett|tttt|tttt|ttL'")));
  target.virtual_pipeline.reset();
  target.stage_letters = "Ett|tttt|tttt|ttL";
  EXPECT_EQ(refusal(with_shared_indexers(), target), "fits");
  target.stage_letters = "Ett|tttt|ttt|tttL";
  EXPECT_THAT(refusal(with_shared_indexers(), target),
              HasSubstr("stage 2 of virtual stage 2 would begin with decoder.layers.9,"));
  target = {};
  target.pipeline = 6;  // more stages than such layers
  EXPECT_THAT(refusal(with_shared_indexers(), target), testing::EndsWith("6 and 10 fit"));
}

TEST(ParallelTarget, DenseLayersOfMixturesAreSplitToo) {
  Numbers numbers = mixtral();
  numbers["ffn_hidden_size"] = 50;
  ParallelTarget target;
  target.tensor = 4;
  EXPECT_EQ(refusal(numbers, target), "fits");
  numbers["moe_layer_freq"] = 2;
  EXPECT_THAT(refusal(numbers, target), HasSubstr("50 rows of ffn_hidden_size cannot be split"));
}

// What a message names is taken.
TEST(ParallelTarget, UnevenStagesThatAreNamedWork) {
  const auto after = [](const std::string& text, const std::string& option) {
    const size_t at = text.find(option + "=");
    return at == std::string::npos ? std::string() : text.substr(at + option.size() + 1);
  };
  int named = 0;
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t stages = 2; stages <= 9; ++stages) {
      for (int64_t virtual_stages = 1; virtual_stages <= 3; ++virtual_stages) {
        Numbers model = llama();
        model["num_layers"] = layers;
        ParallelTarget target;
        target.pipeline = stages;
        if (virtual_stages > 1) target.virtual_pipeline = virtual_stages;
        if (layers % (stages * virtual_stages) == 0) continue;
        const std::string text = refusal(model, target);
        SCOPED_TRACE(text);
        const auto is_taken = [&](ParallelTarget way) {
          ++named;
          EXPECT_EQ(refusal(model, way), "fits");
        };
        if (const std::string n = after(text, "options.first_stage_layers"); !n.empty()) {
          ParallelTarget way = target;
          way.first_stage_layers = std::stoll(n);
          is_taken(way);
        }
        if (const std::string n = after(text, "options.last_stage_layers"); !n.empty()) {
          ParallelTarget way = target;
          way.last_stage_layers = std::stoll(n);
          is_taken(way);
        }
        if (const std::string word = after(text, "options.stage_letters"); !word.empty()) {
          ParallelTarget way = target;
          way.virtual_pipeline.reset();
          way.stage_letters = word.substr(1, word.find('\'', 1) - 1);
          is_taken(way);
        }
        const std::string embedding = "options.embedding_is_a_layer";
        if (text.find(embedding) == std::string::npos) continue;
        ParallelTarget way = target;
        way.embedding_is_a_layer = true;
        way.loss_is_a_layer = text.find(embedding + " with ") != std::string::npos;
        is_taken(way);
      }
    }
  }
  EXPECT_GT(named, 1000);
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
  EXPECT_THAT(refusal(llama(), target), HasSubstr("for options.pipeline, 1 and 3 fit"));
  target.first_stage_layers = 2;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("cannot be combined with it"));
  target = {};
  target.tensor = 8;
  target.pipeline = 12;
  target.data = int64_t{1} << 23;
  EXPECT_THAT(refusal(llama(), target), HasSubstr("ranks are too many"));
  EXPECT_THROW(apply_target({}, {}), Error);
}

}  // namespace
}  // namespace ferry
