#include <gtest/gtest.h>

#include "kernels/gpu_attention.h"

namespace ferry::kernels {
namespace {

AttentionShape shape(int64_t sequences, int64_t length, int64_t heads, int64_t groups,
                     int64_t dim) {
  return {.sequences = sequences,
          .queries = length,
          .keys = length,
          .heads = heads,
          .groups = groups,
          .dim = dim,
          .value_dim = dim};
}

// Every element of the queries has a sum, of keys and values one for each part of their group.
TEST(AttentionWorkspace, HasSumsForAllElements) {
  const AttentionWorkspace alone = one_pass_workspace(shape(64, 1024, 12, 12, 64), 64);
  EXPECT_EQ(alone.rows, 64 * 12 * 1024);
  EXPECT_EQ(alone.query_sums, 64 * 12 * 1024 * 64);
  EXPECT_EQ(alone.key_sums, 0);
  EXPECT_EQ(alone.turns, 64 * 12 * 16 * 2 + 2);
  EXPECT_EQ(alone.count(), alone.rows * 2 + alone.query_sums + alone.turns);
  const AttentionWorkspace grouped = one_pass_workspace(shape(3, 4096, 32, 8, 128), 128);
  EXPECT_EQ(grouped.parts, 4);
  EXPECT_EQ(grouped.query_sums, 3 * 32 * 4096 * 128);
  EXPECT_EQ(grouped.key_sums, 3 * 8 * 4 * 4096 * 128);
  EXPECT_EQ(grouped.count(),
            grouped.rows * 2 + grouped.query_sums + grouped.key_sums * 2 + grouped.turns);
}

TEST(AttentionWorkspace, IsPaddedToTiles) {
  const AttentionWorkspace odd = one_pass_workspace(shape(1, 130, 6, 2, 80), 96);
  EXPECT_EQ(odd.rows, 6 * 256);
  EXPECT_EQ(odd.query_sums, 6 * 192 * 128);
  EXPECT_EQ(odd.parts, 3);
  EXPECT_EQ(odd.key_sums, 2 * 3 * 256 * 96);
}

TEST(AttentionWorkspace, HasNoMoreThanAGibibyteOfParts) {
  EXPECT_EQ(one_pass_workspace(shape(1, 65536, 32, 4, 128), 128).parts, 4);
  EXPECT_EQ(one_pass_workspace(shape(1, 131072, 32, 4, 128), 128).parts, 2);
  EXPECT_EQ(one_pass_workspace(shape(1, 524288, 32, 4, 128), 128).parts, 1);
}

TEST(AttentionWorkspace, IsThatOfTheKernelsThatAreChosen) {
  const int32_t documents[1] = {0};
  auto plain = shape(2, 256, 4, 4, 96), wide = shape(2, 256, 4, 4, 192);
  EXPECT_TRUE(is_in_one_pass(plain));
  EXPECT_EQ(register_columns(plain), 96);
  EXPECT_FALSE(is_in_one_pass(wide));
  plain.document_begin = documents;
  EXPECT_FALSE(is_in_one_pass(plain));
  plain.dropout = 0.1;
  EXPECT_TRUE(is_in_one_pass(plain));
  EXPECT_EQ(register_columns(plain), 128);
  AttentionBackward backward;
  backward.shape = wide;
  backward.q.type = Type::bf16;
  EXPECT_EQ(attention_workspace_bytes(backward), 4 * 2 * 2 * 4 * 256);
  backward.q.type = Type::f32;
  EXPECT_EQ(attention_workspace_bytes(backward), 0);
}

}  // namespace
}  // namespace ferry::kernels
