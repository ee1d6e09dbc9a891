#include "trainer/arguments/agreement.h"

#include <gmock/gmock.h>

#include "tests/trainer/arguments/runs.h"

namespace ferry {
namespace {

using testing::HasSubstr;

// The error of rank 1 of two, which were given these besides the same arguments; empty: none.
std::string problem_of(const std::string& first, const std::string& second) {
  const auto text = [](const std::string& more) {
    return agreement_text(
        test::completed("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
                        "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 "
                        "--train-iters 4 --lr 1e-3 " +
                        more)
            .arguments);
  };
  try {
    check_agreement(text(second), text(first), 1);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    return error.what();
  }
}

TEST(Agreement, NamesWhatRanksHaveOtherwise) {
  EXPECT_THAT(problem_of("", "--lr 2e-3"),
              HasSubstr("rank 1 has --lr 0.002, and rank 0 --lr 0.001"));
  for (const char* other :
       {"--train-iters 5", "--seed 5", "--lr-decay-style cosine", "--split 9,1", "--bf16",
        "--global-batch-size 8", "--eval-iters 3", "--save run --save-interval 2", "--skip-train",
        "--load run", "--clip-grad 2", "--log-interval 7", "--recompute-granularity selective"}) {
    EXPECT_NE(problem_of("", other), "") << other;
    EXPECT_NE(problem_of(other, ""), "") << other;
  }
}

// Folders may be mounted at other places, and the scratch space be a host's own.
TEST(Agreement, LeavesPathsToEachHost) {
  EXPECT_EQ(problem_of("", ""), "");
  EXPECT_EQ(problem_of("--load /a --save /a --save-interval 2 --data-path /a/x --device cpu",
                       "--load /b --save /b --save-interval 2 --data-path /b/x"),
            "");
  EXPECT_NE(problem_of("--data-path a", "--mock-data"), "");
}

}  // namespace
}  // namespace ferry
