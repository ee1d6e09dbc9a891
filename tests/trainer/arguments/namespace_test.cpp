#include "trainer/arguments/namespace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "convert/arguments/arguments.h"
#include "tests/trainer/arguments/runs.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

Launch ranks(int64_t world_size) {
  Launch launch;
  launch.launcher = "mpirun";
  launch.world_size = world_size;
  return launch;
}

LoadedValue saved(const TrainArguments& arguments, const SavedProgress& progress = {}) {
  Draft draft;
  const Value root = write_namespace(arguments, progress, draft);
  return std::move(draft).finish(root);
}

Checkpoint peer(const std::string& name) {
  return open_checkpoint(posix_file_system(), fixture("megatron/" + name));
}

// Every attribute of the args that Megatron-LM saved for the same command line, types included.
TEST(Namespace, IsWhatMegatronSaved) {
  std::string line = llama_words();
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(line.find(from), std::string::npos) << from;
    for (size_t at = 0; (at = line.find(from, at)) != std::string::npos; at += to.size()) {
      line.replace(at, from.size(), to);
    }
  };
  replace("llama_tp2pp2_full", "llama_tp2dp2_dpr");
  replace("cache_llama", "/tmp/ck/cache_llama");
  replace("--save llama", "--save /tmp/ck/llama");
  replace("--pipeline-model-parallel-size 2", "");
  replace("--dist-ckpt-optim-fully-reshardable", "");
  TrainArguments a = completed(line, ranks(4)).arguments;
  complete_vocabulary(a, 250);
  a.consumed_train_samples = 40;
  SavedProgress progress;
  progress.iteration = 5;
  const LoadedValue ours = saved(a, progress);
  const Checkpoint theirs = peer("llama_tp2dp2_dpr");
  const nlohmann::json mine = to_json(ours.value), real = to_json(theirs.args.value);
  ASSERT_GT(real.size(), 800u);
  for (const auto& [name, value] : real.items()) {
    ASSERT_TRUE(mine.contains(name)) << name;
    EXPECT_EQ(mine[name], value) << name;
    const Value own = ours.value.get(name), other = theirs.args.value.get(name);
    const bool zero = name == "num_floating_point_operations_so_far";  // 0 or 0.0
    EXPECT_TRUE(own.kind() == other.kind() || zero) << name;
    EXPECT_EQ(own.kind() == ValueKind::object ? own.text() : "",
              other.kind() == ValueKind::object ? other.text() : "")
        << name;
  }
  for (const auto& [name, value] : mine.items()) EXPECT_TRUE(real.contains(name)) << name;
}

TEST(Namespace, GivesTheModelBack) {
  TrainArguments a = completed(deepseek_words(), ranks(2)).arguments;
  complete_vocabulary(a, 250);
  const LoadedValue args = saved(a);
  const RunArguments run = read_run_arguments(args.value);
  EXPECT_EQ(run.layers, 4);
  EXPECT_EQ(run.experts, 8);
  EXPECT_EQ(run.expert, 2);
  EXPECT_EQ(run.world_size, 2);
  EXPECT_FALSE(run.transformer_engine);
  const ReadArguments read = read_arguments(args.value, "args");
  EXPECT_THAT(read.problems, testing::IsEmpty());
  const Architecture& model = read.architecture;
  EXPECT_TRUE(model.mla);
  EXPECT_EQ(model.q_lora_rank, 24);
  EXPECT_EQ(model.padded_vocab, 256);
  EXPECT_EQ(model.shared_ffn, 48);
  EXPECT_THAT(model.moe_layers, testing::ElementsAre(false, true, true, true));
  EXPECT_EQ(model.router_score, RouterScore::sigmoid);

  a = completed(llama_words(), ranks(8)).arguments;
  const LoadedValue llama = saved(a);
  const RunArguments stages = read_run_arguments(llama.value);
  EXPECT_EQ(stages.tensor, 2);
  EXPECT_EQ(stages.pipeline, 2);
  EXPECT_EQ(stages.dense_data_parallel(), 2);
  EXPECT_EQ(read_arguments(llama.value, "args").architecture.groups, 2);
}

TEST(Namespace, HasTheForksArgumentsWhereTheyMatter) {
  const std::string words = gpt2_words();
  EXPECT_FALSE(saved(completed(words).arguments).value.has("ademamix_alpha"));
  const auto a = completed(words + "--optimizer ademamix --ademamix-alpha 8 --xielu").arguments;
  EXPECT_EQ(saved(a).value.get("ademamix_alpha").real(), 8);
  EXPECT_EQ(saved(a).value.get("xielu").boolean(), true);
}

// Each kind of model that the peers trained: its arguments alone make the same model.
TEST(AdoptArguments, TakesTheModelFromACheckpoint) {
  for (const char* name : {"hot_gpt2", "hot_llama", "hot_qwen2", "llama_pp2vpp", "hot_mixtral",
                           "swiss_llama_tp2pp2"}) {
    SCOPED_TRACE(name);
    const Checkpoint checkpoint = peer(name);
    TrainArguments a = parsed(
        "--micro-batch-size 1 --train-iters 5 --lr 1e-3 --use-checkpoint-args "
        "--transformer-impl local --norm-epsilon 1e-5 --init-method-std 0.02");
    std::vector<std::string> notes;
    adopt_checkpoint_arguments(a, checkpoint.args.value, name, notes);
    EXPECT_THAT(notes, testing::Contains("Setting num_layers to 4 from checkpoint"));
    complete_arguments(a, Launch(), notes);
    check_checkpoint_arguments(a, checkpoint.args.value, name);
    const auto of = [](const Value& args) { return read_arguments(args, "args").architecture; };
    const LoadedValue ours = saved(a);
    const Architecture mine = of(ours.value), theirs = of(checkpoint.args.value);
    EXPECT_EQ(mine.layers, theirs.layers);
    EXPECT_EQ(mine.hidden, theirs.hidden);
    EXPECT_EQ(mine.groups, theirs.groups);
    EXPECT_EQ(mine.ffn, theirs.ffn);
    EXPECT_EQ(mine.rope_theta, theirs.rope_theta);
    EXPECT_EQ(mine.activation, theirs.activation);
    EXPECT_EQ(mine.norm, theirs.norm);
    EXPECT_EQ(mine.tied, theirs.tied);
    EXPECT_EQ(mine.qkv_bias, theirs.qkv_bias);
    EXPECT_EQ(mine.experts, theirs.experts);
    EXPECT_EQ(mine.expert_ffn, mine.experts > 0 ? theirs.expert_ffn : 0);
    EXPECT_EQ(mine.moe_layers, theirs.moe_layers);
    EXPECT_EQ(a.tensor_model_parallel_size, 1);
  }
}

// What shapes the model beyond its parameters: gpt-oss's and SmolLM3's, as ferry converts them.
TEST(AdoptArguments, TakesWhatNoParameterShows) {
  Draft draft;
  Value args = draft.instance("argparse.Namespace");
  const auto integers = [&](std::initializer_list<int> numbers) {
    std::vector<Value> all;
    for (const int number : numbers) all.push_back(draft.integer(number));
    return draft.list(all);
  };
  draft.put(args, "num_layers", draft.integer(4));
  draft.put(args, "no_rope_freq", integers({0, 0, 0, 1}));
  draft.put(args, "softmax_type", draft.string("learnable"));
  draft.put(args, "quick_geglu", draft.boolean(true));
  draft.put(args, "activation_func_clamp_value", draft.real(7));
  draft.put(args, "glu_linear_offset", draft.real(1));
  draft.put(args, "position_embedding_type", draft.string("yarn"));
  draft.put(args, "rotary_scaling_factor", draft.real(32));
  draft.put(args, "yarn_original_max_position_embeddings", draft.integer(4096));
  draft.put(args, "yarn_beta_fast", draft.real(30));
  draft.put(args, "yarn_beta_slow", draft.real(2));
  draft.put(args, "yarn_correction_range_round_to_int", draft.boolean(false));
  TrainArguments a = default_arguments();
  std::vector<std::string> notes;
  adopt_checkpoint_arguments(a, args, "x", notes);
  const LoadedValue ours = saved(a);
  for (const char* name :
       {"activation_func_clamp_value", "glu_linear_offset", "rotary_scaling_factor",
        "yarn_original_max_position_embeddings", "yarn_beta_fast", "yarn_beta_slow"}) {
    EXPECT_EQ(ours.value.get(name).real(), args.get(name).real()) << name;
  }
  for (const char* name : {"softmax_type", "position_embedding_type"}) {
    EXPECT_EQ(ours.value.get(name).string(), args.get(name).string()) << name;
  }
  EXPECT_EQ(std::get<std::vector<int64_t>>(a.no_rope_freq), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_TRUE(a.quick_geglu);
  EXPECT_EQ(ours.value.get("yarn_correction_range_round_to_int").boolean(), false);
  EXPECT_TRUE(saved(default_arguments()).value.get("yarn_correction_range_round_to_int").is_none());
  EXPECT_EQ(parsed("--no-yarn-correction-range-round-to-int").yarn_correction_range_round_to_int,
            false);
  EXPECT_EQ(parsed("--yarn-correction-range-round-to-int").yarn_correction_range_round_to_int,
            true);
}

TEST(AdoptArguments, LeavesNumbersThatWereGivenAndTakesRanksWhenAsked) {
  const Checkpoint checkpoint = peer("llama_legacy_tp2pp2");
  TrainArguments a =
      parsed("--seq-length 32 --use-mp-args-from-checkpoint-args --swiglu --num-layers 8");
  std::vector<std::string> notes;
  adopt_checkpoint_arguments(a, checkpoint.args.value, "x", notes);
  EXPECT_EQ(a.seq_length, 32);
  EXPECT_EQ(a.num_layers, 8);
  EXPECT_EQ(a.hidden_size, 32);
  EXPECT_EQ(a.tensor_model_parallel_size, 2);
  EXPECT_EQ(a.pipeline_model_parallel_size, 2);
  try {
    check_checkpoint_arguments(a, checkpoint.args.value, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("num_layers is 4 in the checkpoint and 8 now"));
    EXPECT_THAT(error.what(), HasSubstr("--num-layers 4"));
  }
}

TEST(AdoptArguments, RefusesModelsThatAreNotToBeHad) {
  Draft draft;
  Value args = draft.instance("argparse.Namespace");
  draft.put(args, "hybrid_layer_pattern", draft.string("M*M*"));
  TrainArguments a = default_arguments();
  std::vector<std::string> notes;
  try {
    adopt_checkpoint_arguments(a, args, "runs/x", notes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("runs/x"));
    EXPECT_THAT(error.what(), HasSubstr("--hybrid-layer-pattern"));
  }
  adopt_checkpoint_arguments(a, Value(), "runs/x", notes);
  EXPECT_THAT(notes.back(), HasSubstr("has no stored arguments"));
}

TEST(ConsumedSamples, AreReadBack) {
  const Checkpoint checkpoint = peer("hot_llama");
  const ConsumedSamples consumed = read_consumed_samples(checkpoint.args.value);
  EXPECT_GT(consumed.train.value_or(0), 0);
  EXPECT_EQ(consumed.skipped, 0);
  EXPECT_FALSE(read_consumed_samples(Value()).train);
}

}  // namespace
}  // namespace ferry::test
