// A rank that runs out of memory, at whichever allocation, ends its operation on all ranks.
#include "tests/short_of_memory.h"

#include <gmock/gmock.h>

#include "ckpt/group/group.h"
#include "tests/group/ranks.h"

namespace ferry::test {
namespace {

const std::string kLongText(100, 'x');

void expect_all_end(const std::string& name, const std::function<void(Group&)>& work) {
  constexpr int kRanks = 4, kMostAllocations = 1000;
  for (const Shortage kind : {Shortage::of_one, Shortage::of_all}) {
    for (int failing = 0; failing < kRanks; ++failing) {
      int after = 0;
      for (; after < kMostAllocations; ++after) {
        const auto errors = on_ranks(kRanks, [&](Group& group) {
          {
            std::optional<ShortOfMemory> is_short;
            if (group.rank() == failing) is_short.emplace(kind, after);
            or_abort(group, [&] { work(group); });  // arguments need memory, too
          }
          group.barrier();
        });
        // With memory enough for this rank's part nothing fails.
        if (!errors[failing]) break;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (rank == failing) continue;
          ASSERT_EQ(text_of(errors[static_cast<size_t>(rank)]),
                    fmt::format("exhausted: rank {}: out of memory", failing))
              << name << ", allocation " << after << " of rank " << failing;
        }
      }
      EXPECT_GT(after, 0) << name;
      EXPECT_LT(after, kMostAllocations) << name;
    }
  }
}

TEST(ShortOfMemory, EndsEachOperationOnAllRanks) {
  expect_all_end("exchange", [](Group& group) { group.exchange(kLongText); });
  expect_all_end("gather", [](Group& group) { group.gather(kLongText); });
  expect_all_end("broadcast", [](Group& group) { group.broadcast(kLongText); });
  expect_all_end("scatter", [](Group& group) {
    group.scatter(std::vector<std::string>(static_cast<size_t>(group.size()), kLongText));
  });
  expect_all_end("barrier", [](Group& group) { group.barrier(); });
}

// The part is left in want of memory, too.
TEST(ShortOfMemory, EndsSplitsOnAllRanks) {
  expect_all_end("split", [](Group& group) { group.split(0, -group.rank()); });
}

TEST(ShortOfMemory, EndsWhatIsDoneTogetherOnAllRanks) {
  expect_all_end("together", [](Group& group) { together(group, [] { return kLongText; }); });
  expect_all_end("together, failing", [](Group& group) {
    try {
      together(group, []() -> std::string {
        if (!ShortOfMemory::is_near()) return "done";
        fail(ErrorKind::io, "{}", kLongText);
      });
    } catch (const SharedError& error) {
      if (error.kind() == ErrorKind::exhausted) throw;
    }
  });
}

}  // namespace
}  // namespace ferry::test
