#include "convert/model/rounded_sums.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/convert/support.h"

namespace ferry {
namespace {

// The second and third become multiples of 2^-7, which bf16 holds.
TEST(RoundedSums, CountsWhatADtypeDoesNotHold) {
  auto files = std::make_shared<MemoryFileSystem>();
  const test::Tensors tensors = {{"norm", {{4}, {0.001f, 0.5f, -0.0078125f, 3e-6f}}}};
  const Checkpoint checkpoint = test::checkpoint_of(tensors, nlohmann::json::object(), files);
  const Catalog& catalog = checkpoint.catalog;
  EXPECT_EQ(rounded_sums(catalog, catalog.entries[0], 1, DType::bf16), 2);
  EXPECT_EQ(rounded_sums(catalog, catalog.entries[0], 1, DType::f64), 0);
  EXPECT_EQ(rounded_sums(catalog, catalog.entries[0], 0, DType::f32), 0);
}

}  // namespace
}  // namespace ferry
