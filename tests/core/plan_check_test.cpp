// Plans that do not write every element once, or lose some, are refused before they run.
#include <gtest/gtest.h>

#include "ckpt/base/error.h"
#include "ckpt/core/plan.h"

namespace ferry {
namespace {

ErrorKind kind_of(const Plan& plan) {
  try {
    check(plan);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(PlanCheck, RefusesGapsDoublesAndLosses) {
  Catalog source;
  source.add_file("a", 64);
  source.entries.push_back({"a", DType::u32, {16}, {}, Role::model});
  source.entries[0].chunks.push_back({{Box::whole({16})}, {}, {0, 0, 64}});
  Plan plan;
  plan.source = SharedCatalog::borrow(source);
  plan.target.files.push_back({"out", 64});
  plan.target.entries.push_back({"t", DType::u32, {16}, {}, Role::model});
  plan.target.entries[0].chunks.push_back({{Box::whole({16})}, {}, {0, 0, 64}});
  plan.recipes.push_back({{0}, {copy_all({16})}, {}});
  EXPECT_NO_THROW(check(plan));

  Plan gap = plan;
  gap.recipes[0].moves = {copy_box({{0}, {15}}, {0})};
  EXPECT_EQ(kind_of(gap), ErrorKind::mismatch);

  Plan twice = plan;  // the right number of elements, one of them written twice
  twice.recipes[0].moves = {copy_box({{0}, {8}}, {0}), copy_box({{8}, {8}}, {7})};
  EXPECT_EQ(kind_of(twice), ErrorKind::mismatch);

  Plan interleaved = plan;  // even and odd places: overlapping bounds, no common element
  interleaved.recipes[0].moves = {{0, {0}, {0}, {{8, 0, 1, 0, 2}}},
                                  {0, {8}, {1}, {{8, 0, 1, 0, 2}}}};
  EXPECT_NO_THROW(check(interleaved));

  Plan runs = plan;  // two by two
  const auto by_two = [](int64_t from, int64_t to) {
    return Move{0, {from}, {to}, {{4, 0, 2, 0, 4}, {2, 0, 1, 0, 1}}};
  };
  runs.recipes[0].moves = {by_two(0, 0), by_two(8, 2)};
  EXPECT_NO_THROW(check(runs));
  runs.recipes[0].moves = {by_two(0, 0), by_two(8, 1)};
  EXPECT_EQ(kind_of(runs), ErrorKind::mismatch);

  Plan outside = plan;
  outside.recipes[0].moves = {copy_box({{4}, {16}}, {0})};
  EXPECT_EQ(kind_of(outside), ErrorKind::mismatch);

  Plan lost = plan;  // half of the input is left out without a word
  lost.target.entries[0].shape = {8};
  lost.target.entries[0].chunks = {{{Box::whole({8})}, {}, {0, 0, 32}}};
  lost.recipes[0].moves = {copy_box({{0}, {8}}, {0})};
  EXPECT_EQ(kind_of(lost), ErrorKind::mismatch);
  lost.dropped.push_back({0, 8});
  EXPECT_NO_THROW(check(lost));
}

}  // namespace
}  // namespace ferry
