// Runs whose linear layers multiply 8-bit numbers: they go as in bf16, begin again where they were,
// and are refused where sizes do not fit.
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/state_of.h"
#include "tests/trainer/language/float8_runs.h"
#include "trainer/checkpoint/float8_scaling.h"
#include "trainer/language/memory_plan.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Float8Runs, LoseAsRunsInBf16Do) {
  const std::string end = "--exit-interval 20 ";
  const auto llama = figures(kLlama + end);
  ASSERT_LT(llama.at(20).loss, 0.97 * llama.at(1).loss);  // it learns
  for (const std::string& fp8 : {kTensorwise, kDelayed, kHistory, kDelayed + "--no-fp8-wgrad ",
                                 std::string("--fp8-format e4m3 --fp8-recipe tensorwise ")}) {
    expect_near(kLlama + end + fp8, llama, 0.01);
  }
  const auto gpt = figures(kGpt + end);
  expect_near(kGpt + end + kDelayed, gpt, 0.01);
}

TEST_F(Float8Runs, AreAlikeAtAllLayouts) {
  const std::string end = "--exit-interval 10 ";
  for (const std::string& fp8 : {kTensorwise, kHistory}) {
    const auto alone = figures(kLlama + end + fp8);
    for (const char* const at :
         {layout::kTensor, layout::kPipeline, layout::kData, layout::kContext, layout::kAll}) {
      const auto spread = figures(kLlama + end + fp8 + at);
      ASSERT_EQ(spread.size(), 10u) << at;
      for (const auto& [iteration, figure] : spread) {
        EXPECT_NEAR(figure.loss / alone.at(iteration).loss, 1, 0.004) << at << " " << iteration;
      }
    }
  }
}

TEST_F(Float8Runs, HaveTheSameBitsWhateverIsRecomputed) {
  for (const std::string& fp8 : {kTensorwise, kDelayed}) {
    const auto kept = figures(kLlama + "--exit-interval 5 " + fp8);
    for (const char* const again :
         {"full --recompute-method uniform --recompute-num-layers 1",
          "selective --recompute-modules layernorm", "selective --recompute-modules mlp",
          "selective --recompute-modules layernorm mlp"}) {
      expect_same(figures(kLlama + "--exit-interval 5 " + fp8 + "--recompute-granularity " + again),
                  kept, again);
    }
    const auto experts = figures(kDeepSeek + "--exit-interval 5 " + fp8);
    for (const char* const again : {"moe", "moe_act"}) {
      expect_same(figures(kDeepSeek + "--exit-interval 5 " + fp8 +
                          "--recompute-granularity selective --recompute-modules " + again),
                  experts, again);
    }
  }
}

// Layers at both ends are all that there are.
TEST_F(Float8Runs, AreRunsInBf16WhereAllLayersAre) {
  const auto wide = figures(kLlama + "--exit-interval 3 ");
  expect_same(figures(kLlama + "--exit-interval 3 --first-last-layers-bf16 " + kTensorwise), wide,
              "both layers in bf16");
  expect_near(kLlama + "--exit-interval 3 --first-last-layers-bf16 --num-layers-at-end-in-bf16 0 " +
                  kTensorwise,
              wide, 0.01);
}

// Weights in FP8 are rounded from those in bf16, of which a precision-aware optimizer keeps the
// other half; gradients may be added up in bf16, too.
TEST_F(Float8Runs, GoWithAPrecisionAwareOptimizer) {
  const std::string end = "--exit-interval 8 ";
  for (const std::string& fp8 : {kTensorwise, kHistory}) {
    for (const std::string& at : {std::string(), std::string(layout::kAll)}) {
      const std::string words = kLlama + end + at + fp8;
      const auto plain = figures(words + "--use-distributed-optimizer ");
      ASSERT_EQ(plain.size(), 8u);
      expect_same(figures(words + kShardedAware), plain, words);
      const auto small = figures(words + kSmallState);
      ASSERT_EQ(small.size(), 8u);
      for (const auto& [iteration, figure] : small) {
        EXPECT_NEAR(figure.loss / plain.at(iteration).loss, 1, 0.01) << words << iteration;
        EXPECT_NEAR(figure.norm / plain.at(iteration).norm, 1, 0.01) << words << iteration;
      }
      EXPECT_NE(small.at(8).loss, plain.at(8).loss) << words;
    }
  }
}

TEST_F(Float8Runs, DoNotRememberEvaluations) {
  const auto without = figures(kLlama + "--exit-interval 5 " + kDelayed);
  expect_same(
      figures(kLlama + "--exit-interval 5 --split 80,20,0 --eval-iters 2 --eval-interval 2 " +
              kDelayed),
      figures(kLlama + "--exit-interval 5 --split 80,20,0 " + kDelayed), "evaluated");
  ASSERT_EQ(without.size(), 5u);
}

TEST_F(Float8Runs, AreRefusedBeforeAnythingIsTaken) {
  std::string fp32 = kLlama + kDelayed;
  fp32.erase(0, std::string("--bf16 ").size());
  expect_refused(fp32, "--fp8-format hybrid needs --bf16");
  expect_refused("--fp16 " + fp32, "instead of --fp16");
  expect_refused(kLlama + "--fp8-format e4m3 --fp8-recipe mxfp8",
                 "--fp8-recipe mxfp8: supported are tensorwise and delayed");
  expect_refused(kLlama + kDelayed + "--first-last-layers-bf16", "--fp8-recipe tensorwise");
  expect_refused(kLlama + kTensorwise + "--first-last-layers-bf16 --num-layers-at-start-in-bf16 3 ",
                 "--num-layers-at-start-in-bf16 3: must be a whole number from 0 to 2");
  expect_refused(kLlama + kDelayed + "--fp8-param-gather", "leave it out");
  expect_refused(kLlama + kDelayed + "--ffn-hidden-size 136",
                 "decoder.layers.0.mlp.linear_fc2 has 136 inputs and 64 outputs on a tensor rank, "
                 "but FP8 products need multiples of 16");
  expect_refused(kLlama + kDelayed + "--ffn-hidden-size 144 " + layout::kTensor,
                 "has 72 inputs and 64 outputs on a tensor rank");
  expect_refused(kLlama + kDelayed + "--seq-length 36",
                 "decoder.layers.0.self_attention.linear_qkv takes 72 tokens at a time");
}

TEST_F(Float8Runs, PlanTheirMemory) {
  const auto plan_of = [&](const std::string& model, bool has_grouped_float8 = true) {
    const auto files = posix_file_system();
    const std::vector<std::string> all = split_words(words(model), "the test");
    TrainArguments arguments = parse_arguments(all, *files);
    std::vector<std::string> notes;
    complete_arguments(arguments, Launch{}, notes);
    complete_vocabulary(arguments, 250);
    return memory_plan(arguments, model_of(arguments, nullptr), kernels::DeviceKind::host, {},
                       has_grouped_float8)
        .front();
  };
  const auto plan = [&](const std::string& more) { return plan_of(kLlama + more); };
  const StagePlan wide = plan(""), narrow = plan(kDelayed), current = plan(kTensorwise);
  EXPECT_EQ(wide.float8, 0);
  // Twice the weights of two layers in bytes; 4 linear layers, each with 3 tensors' scale, maximum
  // and newest number, and the scale of the weight's bytes.
  const int64_t weights = 64 * (128 + 64 + 3 * 128);
  EXPECT_EQ(narrow.float8, 2 * (2 * weights + 4 * (3 * (16 + 8) + 16)));
  EXPECT_EQ(narrow.bytes() - narrow.activations, wide.bytes() - wide.activations + narrow.float8);
  // A layer keeps a byte of each input but attention's output, and not two.
  EXPECT_LE(narrow.activations, current.activations);
  const int64_t tokens = 128, spared = 2 * tokens * (64 + 64 + 128);
  EXPECT_LT(plan(kDelayed + "--num-layers 12").activations,
            plan("--num-layers 12").activations - 4 * spared);
  // With a precision-aware optimizer: 2 bytes of a gradient and 6 of the optimizer's for each
  // parameter of 2, and the same copies in FP8.
  const StagePlan small = plan(kSmallState), both = plan(kSmallState + kDelayed);
  EXPECT_EQ(both.float8, narrow.float8);
  EXPECT_EQ(both.state.gradients, both.state.parameters);
  EXPECT_EQ(both.state.optimizer, 3 * both.state.parameters);
  EXPECT_EQ(both.bytes() - both.activations, 5 * small.state.parameters + narrow.float8);
  EXPECT_EQ(both.parameter_bytes(), small.parameter_bytes() + narrow.float8);
  // Two copies of a layer's 4 experts' weights, a scale of each, and the numbers of two linear
  // layers. Of what experts take the tokens are kept, in bytes, and not the rows.
  const std::string experts = kBiasedExperts + "--disable-bias-linear --num-layers 12 ";
  const StagePlan routed = plan_of(experts + kDelayed);
  const int64_t attention = 64 * (3 * 64 + 64), expert = 64 * 3 * 48;
  EXPECT_EQ(routed.float8, 12 * (2 * (attention + 4 * expert) + 2 * (3 * (16 + 8) + 16) +
                                 2 * (3 * (16 + 8) + 4 * 16)));
  EXPECT_LT(routed.activations, plan_of(experts + kDelayed + "--no-fp8-wgrad ").activations -
                                    12 * tokens * (2 * 2 * 64 - 64));
  // As on a GPU that computes experts in bf16.
  EXPECT_EQ(plan_of(experts + kDelayed, false).float8,
            12 * (2 * attention + 2 * (3 * (16 + 8) + 16)));
}

struct Float8Run {
  std::string fp8, layout, model = kLlama;
};
void PrintTo(const Float8Run& one, std::ostream* out) {
  *out << one.model << one.fp8 << one.layout;
}

class Float8Resume : public testing::TestWithParam<Float8Run> {};

TEST_P(Float8Resume, IsTheUnbrokenRun) {
  const Scratch scratch;
  const auto figures = [&](const std::string& name, int64_t until) {
    return figures_in(
        run_of("--load " + scratch.path(name) + " --save " + scratch.path(name) +
               common_words(scratch) + GetParam().model + GetParam().fp8 + GetParam().layout +
               "--eval-iters 0 --save-interval 10 --exit-interval " + std::to_string(until)));
  };
  const auto whole = figures("whole", 9);
  figures("broken", 4);
  for (const auto& [iteration, figure] : figures("broken", 9)) {
    if (iteration == 6) continue;  // the average of two iterations
    EXPECT_EQ(figure.loss, whole.at(iteration).loss) << iteration;
    EXPECT_EQ(figure.norm, whole.at(iteration).norm) << iteration;
  }
  EXPECT_THAT(differences(scratch.path("whole"), scratch.path("broken")), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Float8Resume,
    testing::Values(Float8Run{kTensorwise, layout::kAlone}, Float8Run{kDelayed, layout::kAlone},
                    Float8Run{kHistory, layout::kTensor}, Float8Run{kHistory, layout::kPipeline},
                    Float8Run{kHistory, layout::kInterleaved}, Float8Run{kDelayed, layout::kData},
                    Float8Run{kHistory, layout::kAll},
                    Float8Run{kHistory + "--ckpt-format torch ", layout::kAll},
                    Float8Run{kTensorwise + kSmallState, layout::kData},
                    Float8Run{kHistory + kSmallState, layout::kAll},
                    Float8Run{kTensorwise, layout::kExpert, kDeepSeek},
                    Float8Run{kHistory, layout::kExpert, kDeepSeek}));

// What is known of a tensor is the same at all layouts, except for the rounding of sums: ranks
// exchange maxima, and a run goes on at another layout with what was known.
TEST(Float8Scaling, IsTheWholeModelsAtAnyLayout) {
  const Scratch scratch;
  const auto run = [&](const std::string& name, const std::string& more) {
    run_of("--save " + scratch.path(name) + common_words(scratch) + kLlama + kHistory + more +
           "--eval-iters 0 --save-interval 10 --exit-interval 3");
    return scaling_in(scratch.path(name));
  };
  const LoadedValue alone = run("alone", "");
  ASSERT_EQ(alone.value.pair_count(), 8u);
  for (const char* const layout : {layout::kTensor, layout::kPipeline, layout::kAll}) {
    const LoadedValue spread = run(std::string("spread") + std::to_string(layout[2]) +
                                       std::to_string(std::string(layout).size()),
                                   layout);
    ASSERT_EQ(spread.value.pair_count(), 8u) << layout;
    for (size_t i = 0; i < 8; ++i) {
      for (const char* const tensor : {"input", "weight", "gradient"}) {
        const Value before = alone.value.pair_value(i).get(tensor);
        const Value got =
            spread.value.get(alone.value.pair_key(i).string().value_or("")).get(tensor);
        ASSERT_EQ(before.get("amax_history").size(), 3u);
        for (size_t age = 0; age < 3; ++age) {
          const double a = got.get("amax_history")[age].real().value_or(-1);
          const double b = before.get("amax_history")[age].real().value_or(-1);
          EXPECT_GT(b, 0);
          // Gradients are those of the mean over as many micro-batches, of more or fewer tokens.
          EXPECT_NEAR(a / b, 1, 0.25) << layout << tensor << " " << age;
        }
      }
    }
  }
  const std::string on = "--load " + scratch.path("alone") + " --save " + scratch.path("on") +
                         common_words(scratch) + kLlama + kHistory + layout::kTensor +
                         "--eval-iters 0 --save-interval 10 --exit-interval 4";
  run_of(on);
  const Value before = alone.value.get("decoder.layers.1.mlp.linear_fc1").get("weight");
  const LoadedValue after = scaling_in(scratch.path("on"));
  const Value moved = after.value.get("decoder.layers.1.mlp.linear_fc1").get("weight");
  for (size_t age = 0; age < 2; ++age) {
    EXPECT_EQ(moved.get("amax_history")[age + 1].real(), before.get("amax_history")[age].real());
  }
}

TEST(Float8Scaling, IsReadAsItWasWritten) {
  const std::vector<std::string> names{"decoder.layers.0.mlp.linear_fc1", "b", "c"};
  std::vector<double> numbers(3 * 3 * 4);
  for (size_t i = 0; i < 12; ++i) numbers[i] = static_cast<double>(i % 4 == 0 ? 1 : i);
  for (size_t i = 24; i < 36; ++i) numbers[i] = i % 4 == 0 ? 1 : 0.1F * static_cast<float>(i);
  const LoadedValue object = write_float8_scaling(names, numbers);
  EXPECT_EQ(object.value.pair_count(), 2u);
  EXPECT_EQ(read_float8_scaling(object.value, names, 4, "x"), numbers);
  // With another length of histories.
  EXPECT_EQ(read_float8_scaling(object.value, names, 3, "x")[4], 5);
  EXPECT_EQ(read_float8_scaling(object.value, names, 6, "x")[4], 0);
  EXPECT_EQ(read_float8_scaling({}, names, 4, "x"), std::vector<double>(36));
  EXPECT_FALSE(write_float8_scaling(names, std::vector<double>(36)).document);
}

TEST(Float8Scaling, WithNumbersOfNoRunIsRefused) {
  const std::vector<std::string> names{"a"};
  const auto problem = [&](double scale, const std::function<Value(Draft&)>& number) {
    Draft draft;
    const Value all = draft.dict(), linear = draft.dict(), input = draft.dict();
    draft.put(input, "scale", draft.real(scale));
    draft.put(input, "amax_history", draft.list({number(draft)}));
    draft.put(linear, "input", input);
    draft.put(all, "a", linear);
    const LoadedValue value = std::move(draft).finish(all);
    try {
      read_float8_scaling(value.value, names, 3, "run");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto real = [](double number) {
    return [number](Draft& draft) { return draft.real(number); };
  };
  EXPECT_EQ(problem(2, real(1)), "");
  EXPECT_EQ(problem(2, real(INFINITY)), "");  // a step may have come to it
  EXPECT_THAT(problem(0, real(1)), HasSubstr("run: fp8_delayed_scaling of a (input) is 0"));
  EXPECT_THAT(problem(NAN, real(1)), HasSubstr("expected a scale"));
  EXPECT_THAT(problem(1e300, real(1)), HasSubstr("expected a scale"));
  EXPECT_THAT(problem(2, real(-1)), HasSubstr("expected a magnitude"));
  EXPECT_THAT(problem(2, real(NAN)), HasSubstr("expected a magnitude"));
  EXPECT_THAT(problem(2, [](Draft& draft) { return draft.string("1"); }),
              HasSubstr("expected a magnitude"));
}

}  // namespace
}  // namespace ferry::test
