// What a run is planned to take.
#include "trainer/run/memory_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"

namespace ferry::test {
namespace {

int64_t activations(const std::string& more, kernels::DeviceKind kind) {
  const std::string text =
      "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 512 "
      "--max-position-embeddings 512 --micro-batch-size 2 --global-batch-size 2 --train-iters 1 "
      "--lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 250 --mock-data "
      "--attention-dropout 0 --hidden-dropout 0 ";
  TrainArguments arguments =
      parse_arguments(split_words(text + more, "the test"), *posix_file_system());
  std::vector<std::string> notes;
  complete_arguments(arguments, Launch{}, notes);
  settle_vocabulary(arguments, 250);
  return memory_plan(arguments, model_of(arguments, nullptr), kind).front().activations;
}

TEST(MemoryPlan, CountsWhatFusedAttentionComputesIn) {
  using enum kernels::DeviceKind;
  const int64_t own = activations("", gpu);
  // Gradients of the scores in two bytes and a sum for each query, of 4 heads of two sequences, and
  // what a device's workspace has beside them.
  const int64_t bytes = 2 * 4 * 512 * (512 * 2 + 4), more = bytes + bytes / 8;
  EXPECT_EQ(activations("--attention-backend fused", gpu), own + more);
  EXPECT_EQ(activations("--attention-backend flash", gpu), own);
  EXPECT_EQ(activations("--attention-backend fused --window-size 99,0", gpu), own);
  EXPECT_EQ(activations("--attention-backend fused", host), activations("", host));
}

}  // namespace
}  // namespace ferry::test
