// What a run is planned to take.
#include "trainer/language/memory_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"
#include "trainer/communicator/communicator.h"

namespace ferry::test {
namespace {

StagePlan first_stage(const std::string& more, kernels::DeviceKind kind) {
  const std::string text =
      "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 512 "
      "--max-position-embeddings 512 --micro-batch-size 2 --global-batch-size 2 --train-iters 1 "
      "--lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 250 --mock-data "
      "--attention-dropout 0 --hidden-dropout 0 ";
  TrainArguments arguments =
      parse_arguments(split_words(text + more, "the test"), *posix_file_system());
  std::vector<std::string> notes;
  complete_arguments(arguments, Launch{}, notes);
  complete_vocabulary(arguments, 250);
  return memory_plan(arguments, model_of(arguments, nullptr), kind).front();
}

int64_t activations(const std::string& more, kernels::DeviceKind kind) {
  return first_stage(more, kind).activations;
}

TEST(MemoryPlan, CountsWhatGradientsOfAttentionAreComputedIn) {
  using enum kernels::DeviceKind;
  // Bytes of a device's workspace that holds so many.
  const auto workspace = [](int64_t bytes) { return bytes + bytes / 8; };
  // For 4 heads of two sequences, by our kernels: two numbers a query, sums of its gradients in
  // fp32, and turns of both halves of 8 tiles.
  const int64_t own = workspace(4 * (2 * 4 * (512 * (2 + 64) + 2 * 8) + 2));
  // By the library's: gradients of the scores in two bytes and a sum for each query.
  const int64_t fused = workspace(2 * 4 * 512 * (512 * 2 + 4));
  const int64_t rest = activations("", gpu) - own;
  EXPECT_EQ(activations("--attention-backend flash", gpu), rest + own);
  EXPECT_EQ(activations("--attention-backend fused", gpu), rest + fused);
  EXPECT_EQ(activations("--attention-backend fused --window-size 99,0", gpu), rest + own);
  EXPECT_EQ(activations("--attention-backend fused", host), rest);
  EXPECT_EQ(activations("", host), rest);
}

TEST(MemoryPlan, HasGradientsOfTheTypeThatTheyAreSummedIn) {
  const auto bytes = [](const std::string& more) {
    const StagePlan plan = first_stage(more, kernels::DeviceKind::host);
    return static_cast<double>(plan.state.gradients) / static_cast<double>(plan.parameter_count);
  };
  EXPECT_NEAR(bytes(""), 4, 0.01);
  EXPECT_NEAR(bytes("--accumulate-allreduce-grads-in-fp32"), 4, 0.01);
  EXPECT_NEAR(bytes("--grad-reduce-in-bf16"), 2, 0.01);
}

// Where ranks run at the same time: stages of a pipeline share one lane, data ranks have their own.
TEST(MemoryPlan, CountsWhatRanksWithAGpuSumUpIn) {
  using enum kernels::DeviceKind;
  const auto more_on_gpus = [](const std::string& layout) {
    return activations(layout, gpu) - activations(layout, host);
  };
  const int64_t alone = more_on_gpus("");
  EXPECT_EQ(more_on_gpus("--pipeline-model-parallel-size 2"), alone + kGpuSumBytes);
  EXPECT_EQ(more_on_gpus("--data-parallel-size 2 --global-batch-size 4"), alone + 2 * kGpuSumBytes);
}

}  // namespace
}  // namespace ferry::test
