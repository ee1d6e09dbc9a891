// Optimizer state in files next to the checkpoint is not overlooked.
#include <gmock/gmock.h>

#include "ckpt/checkpoint.h"
#include "ckpt/integrity/soundness.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/state_of.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(LayerWiseFiles, OfADistributedCheckpointLieInItOrInTheRunsFolder) {
  for (const std::string folder : {"run/iter_0000005", "run"}) {
    const auto files = std::make_shared<MemoryFileSystem>();
    test::copy_tree(test::fixture("megatron/hot_llama"), *files, "run");
    EXPECT_EQ(open_checkpoint(files, "run").optimizer_problem, "");
    files->put(folder + "/layer_wise_optimizer_0.pt", "x");
    files->put(folder + "/layer_wise_optimizer_1.pt", "x");
    files->put(folder + "/layer_wise_optimizer_.pt", "no number");
    const Checkpoint checkpoint = open_checkpoint(files, "run");
    EXPECT_THAT(checkpoint.optimizer_problem,
                HasSubstr("in 2 files layer_wise_optimizer_*.pt in " + folder + ","));
    EXPECT_THAT(state_of(checkpoint).warnings, Contains(HasSubstr("layer_wise_optimizer_")));
    // Nothing is wrong with it: older iterations may go.
    EXPECT_EQ(problem_by_structure(files, "run/iter_0000005"), "");
  }
}

TEST(LayerWiseFiles, AreOfNoMatterWhereTheCheckpointHasTheState) {
  const auto files = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_tp2dp2_dpr"), *files, "run");
  files->put("run/layer_wise_optimizer_0.pt", "x");
  const Checkpoint checkpoint = open_checkpoint(files, "run");
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(checkpoint.optimizer, OptimizerLayout::dp_reshardable);
}

}  // namespace
}  // namespace ferry
