// Steps that succeed on all ranks or fail on all alike.
#include <gmock/gmock.h>

#include <new>

#include "ckpt/base/digest.h"
#include "ckpt/group/group.h"
#include "ckpt/group/group_run.h"
#include "tests/group/ranks.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Together, EveryRankHasAllResults) {
  const auto errors = on_ranks(5, [](Group& group) {
    const auto all = together(group, [&] { return std::to_string(group.rank()); });
    EXPECT_THAT(all, ElementsAre("0", "1", "2", "3", "4"));
  });
  EXPECT_THAT(texts_of(errors), Each(""));
}

// The first one's counts, and the group goes on.
TEST(Together, AllFailAlikeAndGoOn) {
  const auto errors = on_ranks(5, [](Group& group) {
    for (int i = 0; i < 3; ++i) {
      try {
        together(group, [&]() -> std::string {
          if (group.rank() >= 2) fail(ErrorKind::corrupt, "file {}", group.rank());
          return "fine";
        });
        ADD_FAILURE();
      } catch (const SharedError& error) {
        EXPECT_STREQ(error.what(), "rank 2: file 2");
        EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      }
    }
    group.barrier();
  });
  EXPECT_THAT(texts_of(errors), Each(""));
}

TEST(Together, WhatAllSayIsNoRanks) {
  const auto errors = on_ranks(3, [](Group& group) {
    together(group, []() -> std::string { fail(ErrorKind::not_found, "nowhere"); });
  });
  EXPECT_THAT(texts_of(errors), Each("not found: nowhere"));
}

TEST(Together, WhateverWorkThrows) {
  const auto error_of = [](const std::function<void()>& work) {
    const auto errors = on_ranks(3, [&](Group& group) {
      EXPECT_THROW(together(group,
                            [&] {
                              if (group.rank() == 1) work();
                              return std::string();
                            }),
                   SharedError);
      together(group, [&] {
        if (group.rank() == 1) work();
        return std::string();
      });
    });
    EXPECT_THAT(texts_of(errors), Each(text_of(errors[0])));
    return text_of(errors[0]);
  };
  EXPECT_EQ(error_of([] { throw std::bad_alloc(); }), "exhausted: rank 1: out of memory");
  EXPECT_EQ(error_of([] { throw std::logic_error("a bug"); }), "internal: rank 1: a bug");
  EXPECT_EQ(error_of([] { throw 7; }), "internal: rank 1: an unknown exception");
}

TEST(Together, DigestsComeFromWhoHasThem) {
  const auto errors = on_ranks(3, [](Group& group) {
    const auto own = static_cast<uint64_t>(group.rank());
    const auto digests = digests_together(group, {2, 0, 2, 1}, [&] {
      std::vector<Digest> mine = {{own, 1}};
      if (own == 2) mine.push_back({own, 2});
      return mine;
    });
    EXPECT_EQ(digests, (std::vector<Digest>{{2, 1}, {0, 1}, {2, 2}, {1, 1}}));
  });
  EXPECT_THAT(texts_of(errors), Each(""));
}

// What other ranks send is checked before it is used.
TEST(Together, UnreadableOutcomesEndTheGroup) {
  for (const std::string& outcome :
       {std::string(), std::string(8, '\2'), std::string("\1\0\0\0\0\0\0\0\377\0\0\0\0\0\0\0", 16),
        std::string("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0more", 20)}) {
    const auto errors = on_ranks(3, [&](Group& group) {
      if (group.rank() == 1) {
        group.exchange(outcome);
        group.barrier();
      } else {
        together(group, [] { return std::string("fine"); });
      }
    });
    for (const std::string& text : texts_of(errors)) {
      EXPECT_THAT(text, testing::MatchesRegex("corrupt: .*another rank's message .*"));
    }
  }
}

TEST(Together, OrAbortEndsTheGroupButForWhatIsShared) {
  const auto errors = on_ranks(3, [](Group& group) {
    EXPECT_THROW(or_abort(group, []() -> int { throw SharedError(ErrorKind::io, "all have it"); }),
                 SharedError);
    EXPECT_EQ(or_abort(group, [] { return 7; }), 7);
    group.barrier();
    if (group.rank() == 2) or_abort(group, [] { fail(ErrorKind::io, "only one has it"); });
    group.barrier();
  });
  EXPECT_THAT(texts_of(errors), ElementsAre("io: rank 2: only one has it",
                                            "io: rank 2: only one has it", "io: only one has it"));
}

}  // namespace
}  // namespace ferry::test
