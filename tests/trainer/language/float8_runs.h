// Models and arguments of runs in FP8.
#pragma once

#include "ckpt/megatron/state_of.h"
#include "tests/trainer/language/runs.h"
#include "trainer/checkpoint/float8_scaling.h"

namespace ferry::test {

inline const std::string kTensorwise = "--fp8-format hybrid --fp8-recipe tensorwise ";
inline const std::string kDelayed = "--fp8-format hybrid ";
inline const std::string kHistory =
    "--fp8-format hybrid --fp8-amax-history-len 3 --fp8-amax-compute-algo max --fp8-margin 1 ";
inline const std::string kShardedAware =
    "--use-distributed-optimizer --use-precision-aware-optimizer ";
inline const std::string kSmallState =
    kShardedAware + "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ";

// Weights at random, of a Llama whose sizes fit on two tensor ranks, too.
inline const std::string kLlama =
    "--bf16 --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 "
    "--group-query-attention --num-query-groups 2 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --max-position-embeddings 64 "
    "--untie-embeddings-and-output-weights ";
inline const std::string kGpt =
    "--bf16 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 ";
inline const std::string kDeepSeek =
    "--bf16 --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--max-position-embeddings 64 --untie-embeddings-and-output-weights --multi-latent-attention "
    "--q-lora-rank 32 --kv-lora-rank 32 --qk-head-dim 16 --qk-pos-emb-head-dim 16 --v-head-dim 16 "
    "--num-experts 4 --moe-ffn-hidden-size 32 --moe-shared-expert-intermediate-size 32 "
    "--moe-layer-freq [0,1] --moe-router-topk 2 --mtp-num-layers 1 "
    "--transformer-impl transformer_engine ";

// Experts with biases, which are no linear layers' and need gradients in bf16.
inline const std::string kBiasedExperts =
    "--bf16 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu --num-experts 4 "
    "--moe-ffn-hidden-size 48 --moe-router-topk 2 --max-position-embeddings 64 ";

class Float8Runs : public testing::Test {
 protected:
  std::string words(const std::string& more) const {
    return common_words(scratch_) + "--eval-iters 0 " + more + " ";
  }
  std::map<int64_t, Figures> figures(const std::string& more) const {
    return figures_in(run_of(words(more)));
  }
  void expect_near(const std::string& more, const std::map<int64_t, Figures>& expected,
                   double tolerance) const {
    const auto got = figures(more);
    EXPECT_EQ(got.size(), expected.size()) << more;
    bool is_another = false;
    for (const auto& [iteration, figure] : got) {
      EXPECT_NEAR(figure.loss / expected.at(iteration).loss, 1, tolerance)
          << more << ", iteration " << iteration;
      is_another = is_another || figure.loss != expected.at(iteration).loss;
    }
    EXPECT_TRUE(is_another) << more;
  }
  void expect_same(const std::map<int64_t, Figures>& got,
                   const std::map<int64_t, Figures>& expected, const std::string& what) const {
    EXPECT_EQ(got.size(), expected.size()) << what;
    for (const auto& [iteration, figure] : got) {
      EXPECT_EQ(figure.loss, expected.at(iteration).loss) << what << ", iteration " << iteration;
      EXPECT_EQ(figure.norm, expected.at(iteration).norm) << what << ", iteration " << iteration;
    }
  }
  void expect_refused(const std::string& more, const std::string& problem) const {
    const Outcome outcome = outcome_of(words(more));
    EXPECT_THAT(outcome.problem, testing::HasSubstr(problem)) << more;
    EXPECT_THAT(outcome.printed, testing::Not(testing::HasSubstr("number of parameters"))) << more;
  }

  const Scratch scratch_;
};

/// The state of delayed scaling of a run.
inline LoadedValue scaling_in(const std::string& run) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run);
  for (const auto& [name, value] : state_of(checkpoint).common) {
    if (name == kFloat8Scaling) return value;
  }
  return {};
}

}  // namespace ferry::test
