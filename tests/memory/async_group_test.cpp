// The asynchronous saver with several ranks: they save together, or all report why not.
#include <gmock/gmock.h>

#include "tests/memory/async_support.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using AsyncGroup = Async;

TEST_F(AsyncGroup, ManyRanksSaveTogether) {
  const auto errors = on_ranks(4, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaverOptions options;
    options.most_in_flight = 1 + rank % 2;
    AsyncSaver saver(memory_, "runs/a", std::move(group), options);
    for (int64_t i = 1; i <= 6; ++i) {
      const RandomModel model = random_model(static_cast<uint32_t>(i));
      saver.save(part_of_model(model, i, rank, 4)).wait();
    }
    saver.finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int64_t i = 1; i <= 6; ++i) {
    expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i), random_model(i));
  }
  EXPECT_EQ(tracker(), "6");
}

// Iteration 2 cannot be saved by rank 1: nobody has it, everybody has the others.
TEST_F(AsyncGroup, OneRanksErrorIsEveryRanks) {
  const auto errors = on_ranks(3, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaver saver(memory_, "runs/a", std::move(group), {});
    std::string messages;
    for (int64_t i = 1; i <= 3; ++i) {
      Snapshot snapshot = part_of_model(model_, i, rank, 3);
      if (i == 2 && rank == 1) snapshot.tensors[4].data = nullptr;
      try {
        saver.save(snapshot).wait();
      } catch (const Error& error) {
        messages += error.what();
      }
    }
    try {
      saver.finish();
    } catch (const Error& error) {
      messages += error.what();
    }
    fail(ErrorKind::invalid, "errors: {}", messages);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("no memory is given"), HasSubstr("tensor weight"))));
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000001", "iter_0000003", "latest_checkpointed_iteration.txt"));
}

TEST_F(AsyncGroup, ARankWithNothingToGiveFailsThatSaveAlone) {
  const auto errors = on_ranks(3, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaver saver(memory_, "runs/a", std::move(group), {});
    for (int64_t i = 1; i <= 3; ++i) {
      if (i == 2 && rank == 1) {
        saver.give_up(i, Error(ErrorKind::unsupported, "tensor a is sparse"));
      } else {
        try {
          saver.save(part_of_model(model_, i, rank, 3)).wait();
        } catch (const Error& error) {
          if (i == 3) throw;
        }
      }
    }
    saver.finish();
  });
  for (const int rank : {0, 2}) {
    if (!errors[static_cast<size_t>(rank)].empty()) {
      EXPECT_THAT(errors[static_cast<size_t>(rank)], HasSubstr("rank 1: tensor a is sparse"));
    }
  }
  EXPECT_EQ(errors[1], "");  // it has reported the error itself
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000001", "iter_0000003", "latest_checkpointed_iteration.txt"));
}

// A rank that ends too early fails what the others save; nobody waits for it.
TEST_F(AsyncGroup, ARankThatEndsFailsTheSavesOfTheOthers) {
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaver saver(memory_, "runs/a", std::move(group), {});
    for (int64_t i = 1; i <= (rank == 0 ? 3 : 1); ++i) {
      saver.save(part_of_model(model_, i, rank, 2)).wait();
    }
    saver.finish();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1: its saver ended before"));
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(tracker(), "1");
}

TEST_F(AsyncGroup, RanksAtOtherIterationsMeetAtThoseThatTheyShare) {
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaverOptions options;
    options.most_in_flight = 4;
    AsyncSaver saver(memory_, "runs/a", std::move(group), options);
    for (int64_t i = 1; i <= 4; ++i) {
      if (i == 2 + rank) continue;  // rank 0 leaves 2 out, rank 1 leaves 3 out
      try {
        saver.save(part_of_model(model_, i, rank, 2)).wait();
      } catch (const Error&) {
      }
    }
    try {
      saver.finish();
    } catch (const Error&) {
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000001", "iter_0000004", "latest_checkpointed_iteration.txt"));
}

TEST_F(AsyncGroup, AGroupThatBreaksIsAnErrorNotAHang) {
  std::vector<std::shared_ptr<Group>> groups = thread_groups(2);
  AsyncSaver saver(memory_, "runs/a", groups[0]);
  saver.save(part_of_model(model_, 1, 0, 2)).wait();
  groups[1].reset();
  try {
    saver.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another rank of the group has ended"));
  }
}

}  // namespace
}  // namespace ferry::test
