// What rank 0 found in a checkpoint is what every rank has of it.
#include <gmock/gmock.h>

#include "ckpt/engine/engine.h"
#include "ckpt/memory/load.h"
#include "tests/memory/random_model.h"
#include "tests/same_value.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::IsEmpty;

class OpenTogether : public testing::Test {
 protected:
  // Both ranks' results, rank 0's first.
  static std::vector<Checkpoint> open(const std::shared_ptr<const FileSystem>& files,
                                      const std::string& path) {
    std::vector<Checkpoint> opened(2);
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Group>& group) {
      opened[static_cast<size_t>(group->rank())] = open_together(files, path, *group);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    return opened;
  }
};

// A sign that is a bit of the view must not get lost between ranks.
TEST_F(OpenTogether, EveryRankReadsNegatedAndConjugatedViewsAsWhatTheyStandFor) {
  const auto opened = open(posix_file_system(), fixture("torch/math_bits.pt"));
  const Checkpoint resolved =
      open_checkpoint(posix_file_system(), fixture("torch/math_bits_resolved.pt"));
  for (const Checkpoint& checkpoint : opened) {
    ASSERT_EQ(checkpoint.catalog->entries.size(), resolved.catalog->entries.size());
    for (const Entry& view : checkpoint.catalog->entries) {
      const Entry* expected = resolved.catalog->find(view.name);
      ASSERT_NE(expected, nullptr) << view.name;
      EXPECT_TRUE(read_tensor(checkpoint.catalog, view, 1 << 20) ==
                  read_tensor(resolved.catalog, *expected, 1 << 20))
          << view.name;
    }
  }
}

TEST_F(OpenTogether, EveryRankKnowsTheOptimizersGroupsAndSteps) {
  const auto opened = open(posix_file_system(), fixture("foreign/verl/fsdp2/global_step_1/actor"));
  EXPECT_EQ(opened[0].optimizer_steps, 1);
  EXPECT_EQ(opened[1].optimizer_steps, 1);
  ASSERT_EQ(opened[0].param_groups.value.size(), 1u);
  ASSERT_NE(opened[1].param_groups.document, nullptr);
  EXPECT_EQ(Comparison::difference(opened[0].param_groups.value, opened[1].param_groups.value), "");
}

TEST_F(OpenTogether, EveryRankKnowsThatAnOptimizerIsSoundButUnsupported) {
  const auto files = std::make_shared<MemoryFileSystem>();
  copy_tree(fixture("megatron/hot_llama"), *files, "run");
  files->put("run/layer_wise_optimizer_0.pt", "x");
  for (const Checkpoint& checkpoint : open(files, "run")) {
    EXPECT_NE(checkpoint.optimizer_problem, "");
    EXPECT_TRUE(checkpoint.optimizer_unsupported);
  }
}

}  // namespace
}  // namespace ferry::test
