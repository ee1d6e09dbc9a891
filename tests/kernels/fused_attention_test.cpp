// Which attention fused kernels compute, and how they see it.
#include <gtest/gtest.h>

#include "kernels/gpu_attention.h"

namespace ferry::kernels {
namespace {

// Megatron-LM's fused [positions, sequences, groups, query heads and key and value, dim].
AttentionBackward plain(int64_t sequences, int64_t groups, int64_t heads, int64_t dim = 128) {
  AttentionBackward x;
  AttentionShape& s = x.shape;
  s.sequences = sequences;
  s.queries = s.keys = 4096;
  s.groups = groups;
  s.heads = groups * heads;
  s.dim = s.value_dim = dim;
  const int64_t group = (heads + 2) * dim;
  x.q_strides = x.k_strides =
      x.v_strides = {sequences * groups * group, groups * group, group, dim};
  x.output_strides = {sequences * groups * heads * dim, groups * heads * dim, heads * dim, dim};
  alignas(16) static char memory[32];  // whose elements nobody reads
  const Array array(memory, Type::bf16);
  x.q = x.k = x.v = x.output = x.doutput = array;
  x.dq = x.dk = x.dv = array;
  return x;
}

TEST(FusedAttention, TakesGroupsForBatches) {
  const auto x = fused(plain(2, 8, 4));
  ASSERT_TRUE(x);
  EXPECT_EQ(x->batches, 16);
  EXPECT_EQ(x->heads, 4);
  EXPECT_EQ(x->q, (FusedStrides{768, 128, 12288}));
  EXPECT_EQ(x->k, (FusedStrides{768, 128, 12288}));
  EXPECT_EQ(x->output, (FusedStrides{512, 128, 8192}));
}

TEST(FusedAttention, TakesWhatHasOneStrideForBatches) {
  AttentionBackward x = plain(1, 8, 4);
  x.k_strides.sequence = 8;  // there is no second one
  EXPECT_TRUE(fused(x));
  x = plain(2, 1, 4);
  x.k_strides.sequence += 64;
  x.k_strides.group = 8;
  ASSERT_TRUE(fused(x));
  EXPECT_EQ(fused(x)->k.batch, x.k_strides.sequence);
  x = plain(2, 8, 4);
  x.k_strides.sequence += 64;
  EXPECT_FALSE(fused(x));
}

TEST(FusedAttention, LeavesTheRest) {
  const auto leaves = [](auto change) {
    AttentionBackward x = plain(2, 8, 4);
    change(x);
    return !fused(x);
  };
  static const int32_t documents[1] = {};
  alignas(16) static char memory[32];
  EXPECT_FALSE(leaves([](auto&) {}));
  EXPECT_TRUE(leaves([](auto& x) { x.accumulate = true; }));
  EXPECT_TRUE(leaves([](auto& x) { x.dk.type = Type::f32; }));
  EXPECT_TRUE(leaves([](auto& x) { x.q = ConstArray(memory + 2, Type::bf16); }));
  EXPECT_TRUE(leaves([](auto& x) { x.q_strides.position += 4; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.window = 100; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.dropout = 0.1; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.query_begin = x.shape.key_begin = 128; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.keys = 2048; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.queries = x.shape.keys = 4100; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.document_begin = documents; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.value_dim = 64; }));
  EXPECT_TRUE(leaves([](auto& x) { x.shape.dim = x.shape.value_dim = 256; }));
  EXPECT_FALSE(leaves([](auto& x) { x.shape.dim = 192; }));
}

// A gibibyte for the gradients of scores: of 32 heads of 4096 positions.
TEST(FusedAttention, ComputesGradientsOfAsManyAsHaveRoom) {
  const auto at_once = [](const AttentionBackward& x) { return batches_at_once(*fused(x)); };
  EXPECT_EQ(at_once(plain(4, 32, 1)), 32);
  EXPECT_EQ(at_once(plain(3, 20, 1)), 30);
  EXPECT_EQ(at_once(plain(1, 37, 1)), 1);
  EXPECT_EQ(at_once(plain(4, 8, 4)), 8);
  EXPECT_EQ(at_once(plain(1, 1, 33)), 0);
  const auto alone = *fused(plain(1, 32, 1)), shared = *fused(plain(1, 8, 4));
  EXPECT_EQ(fused_bytes(alone, 32), (int64_t{1} << 30) + 32 * 4096 * 4);
  EXPECT_EQ(fused_bytes(shared, 8), fused_bytes(alone, 32) + int64_t{32} * 4096 * 256 * 2);
  AttentionBackward long_one = plain(1, 8, 1);
  long_one.shape.queries = long_one.shape.keys = 32768;
  EXPECT_EQ(at_once(long_one), 0);
}

}  // namespace
}  // namespace ferry::kernels
