// Runs that Megatron-LM began go on as it goes on itself, at whatever layout.
//
// fixtures/continuations/<run>.log has Megatron-LM's own lines of iterations 6 to 25, from the
// checkpoint fixtures/megatron/<run> of iteration 5, fp32 on one GPU.
#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

struct ContinuedRun {
  const char* run;
  const char* layout;
};

void PrintTo(const ContinuedRun& one, std::ostream* out) { *out << one.run << " " << one.layout; }

// Options that a checkpoint does not hold: how loads are balanced.
const std::map<std::string, std::string> kLosses{
    {"f32_qwen3", ""},
    {"f32_qwen3moe", "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2"},
    {"f32_deepseek", "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4"},
    {"g_f32_gptoss",
     "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3 --seed 1234 "
     "--transformer-impl transformer_engine"}};

class Continue : public testing::TestWithParam<ContinuedRun> {
 protected:
  std::string words(const std::string& from, const std::string& layout, int64_t until) const {
    return "--load " + from + " --save " + scratch_.path("run") + common_words(scratch_) +
           "--eval-iters 0 --save-interval 10 --exit-interval " + std::to_string(until) + " " +
           kLosses.at(GetParam().run) + " " + layout;
  }

  const Scratch scratch_;
};

TEST_P(Continue, AsMegatronDoes) {
  const std::string fixtures = FERRY_FIXTURES;
  const std::string run = GetParam().run;
  const auto theirs = figures_in(read_text(fixtures + "/continuations/" + run + ".log"));
  ASSERT_EQ(theirs.size(), 20u);
  const auto ours = figures_in(run_of(words(run_fixture(run), GetParam().layout, 25)));
  ASSERT_EQ(ours.size(), 20u);
  for (const auto& [iteration, expected] : theirs) {
    const Figures& figures = ours.at(iteration);
    EXPECT_NEAR(figures.loss / expected.loss, 1, 1e-6) << iteration;
    EXPECT_NEAR(figures.balance, expected.balance, 1e-5) << iteration;
    EXPECT_NEAR(figures.norm, expected.norm, 1.1e-3) << iteration;  // three digits are printed
    EXPECT_EQ(figures.learning_rate, expected.learning_rate) << iteration;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Peers, Continue,
    testing::Values(ContinuedRun{"f32_qwen3", layout::kAlone},
                    ContinuedRun{"f32_qwen3", "--tensor-model-parallel-size 2"},
                    ContinuedRun{"f32_qwen3", layout::kTensor}, ContinuedRun{"f32_qwen3", layout::kPipeline},
                    ContinuedRun{"f32_qwen3", layout::kInterleaved}, ContinuedRun{"f32_qwen3", layout::kData},
                    ContinuedRun{"f32_qwen3", layout::kContext}, ContinuedRun{"f32_qwen3", layout::kAll},
                    ContinuedRun{"f32_qwen3moe", layout::kAlone}, ContinuedRun{"f32_qwen3moe", layout::kTensor},
                    ContinuedRun{"f32_qwen3moe", layout::kExpert}, ContinuedRun{"f32_qwen3moe", layout::kContext},
                    ContinuedRun{"f32_qwen3moe", layout::kPipeline}, ContinuedRun{"f32_deepseek", layout::kAlone},
                    ContinuedRun{"f32_deepseek", layout::kTensor}, ContinuedRun{"f32_deepseek", layout::kExpert},
                    ContinuedRun{"f32_deepseek", layout::kPipeline}, ContinuedRun{"g_f32_gptoss", layout::kAlone},
                    ContinuedRun{"g_f32_gptoss", layout::kWholeExperts},
                    ContinuedRun{"g_f32_gptoss", layout::kExpert}, ContinuedRun{"g_f32_gptoss", layout::kContext},
                    ContinuedRun{"g_f32_gptoss", layout::kPipeline}));

}  // namespace
}  // namespace ferry::test
