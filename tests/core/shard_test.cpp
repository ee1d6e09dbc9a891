// Shards against a list of their elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "ckpt/base/box.h"

namespace ferry {
namespace {

class RandomShards {
 public:
  explicit RandomShards(uint32_t seed) : random_(seed) {}

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Dims shape() {
    Dims shape(static_cast<size_t>(pick(0, 4)));
    for (int64_t& extent : shape) extent = pick(1, 6);
    return shape;
  }
  // A box, or a run of one, which may be empty.
  Shard inside(const Dims& shape) {
    Shard shard;
    for (const int64_t extent : shape) {
      shard.box.offset.push_back(pick(0, extent - 1));
      shard.box.size.push_back(pick(1, extent - shard.box.offset.back()));
    }
    if (pick(0, 1) == 0) return shard;
    const int64_t elements = shard.elements("a shard");
    shard.run_begin = pick(0, elements);
    shard.run_count = pick(0, elements - shard.run_begin);
    return shard;
  }

 private:
  std::mt19937 random_;
};

// Coordinates of a box's elements, row-major.
std::vector<Dims> elements_of(const Box& box) {
  std::vector<Dims> all;
  Dims at = box.offset;
  for (int64_t left = element_count(box.size, "box"); left > 0; --left) {
    all.push_back(at);
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < box.offset[axis] + box.size[axis]) break;
      at[axis] = box.offset[axis];
    }
  }
  return all;
}

std::vector<Dims> elements_of(const Shard& shard) {
  std::vector<Dims> all = elements_of(shard.box);
  if (!shard.is_run()) return all;
  return {all.begin() + shard.run_begin, all.begin() + shard.run_begin + shard.run_count};
}

TEST(Shard, FilledBoxesHoldItsElementsAtTheirPlaces) {
  RandomShards random(1);
  for (int i = 0; i < 5000; ++i) {
    const Shard shard = random.inside(random.shape());
    const std::vector<Dims> elements = elements_of(shard);
    const Dims strides = row_major_strides(shard.box.size);
    std::vector<Dims> found(elements.size());
    size_t count = 0;
    for (const FilledBox& filled : filled_boxes(shard)) {
      for (const Dims& element : elements_of(filled.box)) {
        int64_t place = filled.first;
        for (size_t axis = 0; axis < element.size(); ++axis) {
          place += (element[axis] - filled.box.offset[axis]) * strides[axis];
        }
        found.at(static_cast<size_t>(place)) = element;
        ++count;
      }
    }
    ASSERT_EQ(count, elements.size()) << to_string(shard);
    ASSERT_EQ(found, elements) << to_string(shard);
    // A run is up to two boxes an axis and one more.
    ASSERT_LE(filled_boxes(shard).size(), 2 * shard.box.size.size() + 1);
  }
}

TEST(Shard, OverlapsWhereAnElementIsShared) {
  RandomShards random(2);
  int shared = 0;
  for (int i = 0; i < 20000; ++i) {
    const Dims shape = random.shape();
    const Shard a = random.inside(shape), b = random.inside(shape);
    const std::vector<Dims> in_a = elements_of(a), in_b = elements_of(b);
    const std::set<Dims> all(in_a.begin(), in_a.end());
    const bool expected =
        std::any_of(in_b.begin(), in_b.end(), [&](const Dims& one) { return all.contains(one); });
    ASSERT_EQ(overlaps(a, b), expected) << to_string(a) << " " << to_string(b);
    ASSERT_EQ(overlaps(b, a), expected) << to_string(a) << " " << to_string(b);
    shared += expected;
    const std::vector<const Shard*> both{&a, &b};
    ASSERT_EQ(find_overlap(both).has_value(), expected);
  }
  EXPECT_GT(shared, 1000);
}

TEST(Shard, IsInsideItsShape) {
  const Dims shape{4, 6};
  EXPECT_TRUE(is_inside(Shard{{{1, 2}, {3, 4}}}, shape));
  EXPECT_FALSE(is_inside(Shard{{{2, 2}, {3, 4}}}, shape));
  EXPECT_FALSE(is_inside(Shard{{{1}, {3}}}, shape));
  EXPECT_TRUE(is_inside(Shard{{{1, 2}, {3, 4}}, 0, 0, 5, 7}, shape));
  EXPECT_FALSE(is_inside(Shard{{{1, 2}, {3, 4}}, 0, 0, 5, 8}, shape));
  EXPECT_FALSE(is_inside(Shard{{{1, 2}, {3, 4}}, 0, 0, -1, 5}, shape));
  EXPECT_FALSE(is_inside(Shard{{{1, 2}, {3, 4}}, 0, 0, 5, INT64_MAX}, shape));
}

TEST(Shard, FindsTheOneOverlapOfMany) {
  std::vector<Shard> shards;
  for (int64_t row = 0; row < 2000; ++row) shards.push_back({{{row, 0}, {1, 8}}});
  std::vector<const Shard*> all;
  for (const Shard& shard : shards) all.push_back(&shard);
  EXPECT_FALSE(find_overlap(all));
  shards[1234].run_begin = 0, shards[1234].run_count = 4;
  const Shard half{{{1234, 0}, {1, 8}}, 0, 0, 4, 4}, more{{{1234, 0}, {1, 8}}, 0, 0, 3, 5};
  all.push_back(&half);
  EXPECT_FALSE(find_overlap(all));
  all.back() = &more;
  EXPECT_EQ(find_overlap(all), std::pair(size_t{1234}, size_t{2000}));
}

TEST(Shard, Text) {
  EXPECT_EQ(to_string(Shard{{{0, 2}, {3, 4}}}), "[0:3, 2:6]");
  EXPECT_EQ(to_string(Shard{{{0, 2}, {3, 4}}, 0, 0, 5, 7}), "elements 5 to 12 of [0:3, 2:6]");
}

}  // namespace
}  // namespace ferry
