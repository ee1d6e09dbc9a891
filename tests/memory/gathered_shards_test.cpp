// What rank 0 makes of the descriptions that all ranks send.
#include "ckpt/memory/saving/gathered_shards.h"

#include <gmock/gmock.h>

#include <functional>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Describes one tensor of two axes.
std::string description(const Dims& shape, const std::vector<Box>& boxes) {
  Packer packer;
  packer.number(1).text("t").choice(DType::bf16).number(2);
  for (const int64_t extent : shape) packer.number(static_cast<uint64_t>(extent));
  packer.number(boxes.size());
  for (const Box& box : boxes) {
    for (const int64_t at : box.offset) packer.number(static_cast<uint64_t>(at));
    for (const int64_t extent : box.size) packer.number(static_cast<uint64_t>(extent));
  }
  return packer.number(0).take();
}

std::vector<std::string> boxes_of(GatheredShards& shards) {
  std::vector<std::string> boxes;
  for (const DcpContent::Chunk& chunk : shards.content().entries.at(0).chunks) {
    boxes.push_back(to_string(chunk.box));
  }
  return boxes;
}

std::string problem_of(const std::vector<std::string>& descriptions, ErrorKind kind) {
  try {
    GatheredShards shards(descriptions);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
}

TEST(GatheredShards, SortBoxesAndTakeEachOnceFromWhoHasLeast) {
  const Box top{{0, 0}, {2, 6}}, middle{{2, 0}, {2, 6}}, bottom{{4, 0}, {1, 6}};
  GatheredShards shards({description({5, 6}, {bottom, top}), description({5, 6}, {middle, top}),
                         description({5, 6}, {middle})});
  EXPECT_THAT(boxes_of(shards), ElementsAre("[0:2, 0:6]", "[2:4, 0:6]", "[4:5, 0:6]"));
  EXPECT_THAT(shards.chosen(), ElementsAre("11", "10", "0"));
}

// Rows that several boxes share: none of them ends before the next one begins.
TEST(GatheredShards, ThatAreColumns) {
  GatheredShards shards({description({3, 6}, {{{0, 4}, {3, 2}}}),
                         description({3, 6}, {{{0, 0}, {3, 3}}, {{0, 3}, {3, 1}}})});
  EXPECT_THAT(boxes_of(shards), ElementsAre("[0:3, 0:3]", "[0:3, 3:4]", "[0:3, 4:6]"));
  EXPECT_THAT(shards.chosen(), ElementsAre("1", "11"));
}

TEST(GatheredShards, ThatAreNotOneTensor) {
  const auto problem = [](const std::vector<Box>& one, const std::vector<Box>& other) {
    return problem_of({description({4, 6}, one), description({4, 6}, other)}, ErrorKind::invalid);
  };
  EXPECT_THAT(problem({{{0, 0}, {3, 6}}}, {{{2, 0}, {2, 6}}}),
              HasSubstr("tensor t: [0:3, 0:6] overlaps [2:4, 0:6]"));
  EXPECT_THAT(problem({{{0, 0}, {4, 4}}}, {{{1, 3}, {2, 3}}}),
              HasSubstr("tensor t: [0:4, 0:4] overlaps [1:3, 3:6]"));
  EXPECT_THAT(problem({{{0, 0}, {2, 6}}}, {{{2, 0}, {2, 5}}}), HasSubstr("hold 22 of 24 elements"));
  EXPECT_THAT(problem({{{0, 0}, {2, 6}}}, {{{2, 0}, {3, 6}}}),
              HasSubstr("[2:5, 0:6] is not inside its shape [4, 6]"));
  EXPECT_THAT(problem_of({description({4, 6}, {{{0, 0}, {4, 6}}}), description({4, 7}, {})},
                         ErrorKind::invalid),
              HasSubstr("tensor t is given as bfloat16 [4, 6] and, by rank 1, as bfloat16 [4, 7]"));
}

// A rank that holds nothing of a tensor says what it is all the same.
TEST(GatheredShards, ContradictedByARankThatHoldsNothing) {
  EXPECT_THAT(problem_of({description({4, 7}, {}), description({4, 6}, {{{0, 0}, {4, 6}}})},
                         ErrorKind::invalid),
              HasSubstr("tensor t is given as bfloat16 [4, 7] and, by rank 1, as bfloat16 [4, 6]"));
  const std::string object = Packer().number(0).number(1).text("t").take();
  EXPECT_THAT(problem_of({description({4, 6}, {}), object}, ErrorKind::invalid),
              HasSubstr("t is given twice, the second time by rank 1"));
}

// A box of a scalar takes no bytes: the number of boxes must not decide how long rank 0 is busy.
TEST(GatheredShards, MoreBoxesThanTheMessageHolds) {
  for (const uint64_t axes : {0, 2}) {
    Packer packer;
    packer.number(1).text("t").choice(DType::bf16).number(axes);
    for (uint64_t i = 0; i < axes; ++i) packer.number(1);
    EXPECT_THAT(problem_of({packer.number(uint64_t{1} << 40).number(0).take()}, ErrorKind::corrupt),
                HasSubstr("ends early"));
  }
}

TEST(GatheredShards, NameWhereEverythingLies) {
  GatheredShards shards(
      {description({4, 6}, {{{2, 0}, {2, 6}}}), description({4, 6}, {{{0, 0}, {2, 6}}})});
  const auto places = [](const char* file, uint64_t offset) {
    return Packer()
        .number(1)
        .text(file)
        .number(300)
        .number(0)
        .number(offset)
        .number(200)
        .digest({7, offset})
        .take();
  };
  shards.set_places({places("a", 100), places("b", 0)});
  EXPECT_THAT(shards.content().files, ElementsAre("a", "b"));
  const auto& chunks = shards.content().entries[0].chunks;
  EXPECT_EQ(chunks[0].place.file, 1U);
  EXPECT_EQ(chunks[1].place.file, 0U);
  EXPECT_EQ(chunks[1].place.offset, 100U);
  const Manifest expected{{{"a", 300, {{100, 200, {7, 100}, {{"t", {{2, 0}, {2, 6}}}}, {}}}},
                           {"b", 300, {{0, 200, {7, 0}, {{"t", {{0, 0}, {2, 6}}}}, {}}}}}};
  EXPECT_EQ(shards.manifest(), expected);
  EXPECT_THROW(shards.set_places({places("a", 100), ""}), Error);
}

}  // namespace
}  // namespace ferry
