// Parts of a tensor that lie in different files.
#include <gmock/gmock.h>

#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {
namespace {

Chunk chunk(uint32_t file, Dims offset, Dims size) {
  return {{{std::move(offset), std::move(size)}}, {}, {file, 0, 1}};
}

Entry entry_of(Dims shape, std::vector<Chunk> chunks) {
  return {"t", DType::u8, std::move(shape), std::move(chunks), Role::model};
}

std::vector<std::pair<std::string, size_t>> cut(const Entry& entry) {
  std::vector<std::pair<std::string, size_t>> cut;
  for (const Slab& slab : slabs_of(entry)) cut.emplace_back(to_string(slab.box), slab.first_chunk);
  return cut;
}

using testing::ElementsAre;
using testing::Pair;

TEST(Slab, OfAFileIsTheWholeTensor) {
  EXPECT_THAT(cut(entry_of({4, 6}, {chunk(1, {0, 0}, {2, 6}), chunk(1, {2, 0}, {2, 6})})),
              ElementsAre(Pair("[0:4, 0:6]", 0)));
  EXPECT_THAT(cut(entry_of({}, {chunk(0, {}, {})})), ElementsAre(Pair("[]", 0)));
}

TEST(Slab, OfRowsIsAChunk) {
  EXPECT_THAT(cut(entry_of({4, 6}, {chunk(1, {3, 0}, {1, 6}), chunk(0, {0, 0}, {3, 6})})),
              ElementsAre(Pair("[0:3, 0:6]", 1), Pair("[3:4, 0:6]", 0)));
}

// Two layers: the columns of each are those of two files.
TEST(Slab, OfColumnsHoldsWholeRows) {
  EXPECT_THAT(
      cut(entry_of({2, 4, 6}, {chunk(0, {0, 0, 0}, {1, 4, 3}), chunk(0, {1, 0, 0}, {1, 4, 3}),
                               chunk(1, {0, 0, 3}, {1, 4, 3}), chunk(1, {1, 0, 3}, {1, 4, 3})})),
      ElementsAre(Pair("[0:1, 0:4, 0:6]", 0), Pair("[1:2, 0:4, 0:6]", 1)));
}

// Parts of an optimizer that are cut in the middle of a row.
TEST(Slab, OfRunsIsTheirBox) {
  std::vector<Chunk> chunks{chunk(0, {0, 0}, {2, 6}), chunk(1, {0, 0}, {2, 6}),
                            chunk(2, {2, 0}, {2, 6})};
  chunks[0].run_begin = 0, chunks[0].run_count = 5;
  chunks[1].run_begin = 5, chunks[1].run_count = 7;
  EXPECT_THAT(cut(entry_of({4, 6}, chunks)),
              ElementsAre(Pair("[0:2, 0:6]", 0), Pair("[2:4, 0:6]", 2)));
}

// Boxes would have elements in common, or of no chunk.
TEST(Slab, ThatIsNoBoxIsTheWholeTensor) {
  EXPECT_THAT(cut(entry_of({3, 6}, {chunk(0, {0, 0}, {1, 6}), chunk(1, {1, 0}, {1, 3}),
                                    chunk(2, {1, 3}, {2, 3}), chunk(3, {2, 0}, {1, 3})})),
              ElementsAre(Pair("[0:3, 0:6]", 0)));
  EXPECT_THAT(
      cut(entry_of({2, 3, 2}, {chunk(0, {0, 0, 0}, {2, 1, 2}), chunk(1, {0, 1, 0}, {1, 2, 2}),
                               chunk(2, {1, 1, 0}, {1, 2, 2})})),
      ElementsAre(Pair("[0:2, 0:3, 0:2]", 0)));
  std::vector<Chunk> half{chunk(0, {0, 0}, {2, 6}), chunk(1, {2, 0}, {2, 6})};
  half[0].run_begin = 0, half[0].run_count = 5;  // of a rank's share of the plan
  EXPECT_THAT(cut(entry_of({4, 6}, half)), ElementsAre(Pair("[0:4, 0:6]", 0)));
}

}  // namespace
}  // namespace ferry
