#include "trainer/schedule/flops.h"

#include <gtest/gtest.h>

#include "tests/trainer/arguments/runs.h"

namespace ferry::test {
namespace {

// What Megatron-LM's function gave for the same arguments.
TEST(FloatingPointOperations, AreMegatronsForPublishedModels) {
  TrainArguments gpt =
      completed(
          "--num-layers 36 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
          "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 288 "
          "--train-iters 1 --lr 1")
          .arguments;
  gpt.padded_vocab_size = 51200;
  EXPECT_DOUBLE_EQ(floating_point_operations(gpt, 288, AttentionCount::full), 2.852902820590387e16);
  TrainArguments llama =
      completed(
          "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
          "--group-query-attention --num-query-groups 8 --swiglu --seq-length 8192 "
          "--max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 128 "
          "--train-iters 1 --lr 1")
          .arguments;
  llama.padded_vocab_size = 128256;
  EXPECT_DOUBLE_EQ(floating_point_operations(llama, 128, AttentionCount::full),
                   6.072602720206848e16);
  EXPECT_LT(floating_point_operations(llama, 128), 6.0e16);
}

// num_floating_point_operations_so_far of the runs' checkpoints after 5 iterations of 8 samples.
TEST(FloatingPointOperations, AreThoseThatRunsSaved) {
  TrainArguments llama = completed(llama_words()).arguments;
  complete_vocabulary(llama, 250);
  EXPECT_EQ(5 * floating_point_operations(llama, 8), 959447040);
  TrainArguments deepseek = completed(deepseek_words() + "--data-parallel-size 2").arguments;
  complete_vocabulary(deepseek, 250);
  EXPECT_EQ(5 * floating_point_operations(deepseek, 8), 1697218560);
  TrainArguments gpt2 = completed(gpt2_words()).arguments;
  complete_vocabulary(gpt2, 250);
  EXPECT_EQ(5 * floating_point_operations(gpt2, 8), 849346560);
}

TEST(FloatingPointOperations, CountPredictionLayersLikeTheLast) {
  const auto of = [](const std::string& more) {
    TrainArguments a = completed(llama_words() + more).arguments;
    complete_vocabulary(a, 250);
    return floating_point_operations(a, 1);
  };
  const double layer = of("--num-layers 6") - of("");
  // Norms and the projection of two inputs, and the output layer once more.
  const double tokens = 64, extra = 6 * tokens * (3 * 32 + 2 * 32 * 32 + 32 * 256);
  EXPECT_EQ(of("--mtp-num-layers 1") - of(""), layer / 2 + extra);
}

TEST(Teraflops, AreOfOneRank) { EXPECT_EQ(teraflops(8e12, 2, 4), 1); }

}  // namespace
}  // namespace ferry::test
