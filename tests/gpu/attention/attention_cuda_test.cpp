// Attention on a GPU against its definition on the processor: random shapes, strides and masks.
//
//   FERRY_TEST_CASES, FERRY_TEST_SEED: as tests/random_cases.h says
#include "tests/gpu/attention/attention_on_gpu.h"
#include "tests/random_cases.h"

namespace ferry::kernels {
namespace {

/// [position, sequence, group, head, dim] or [sequence, group, head, position, dim], with gaps that
/// the copy engine takes when `even`.
Tensor tensor(Random& random, const AttentionShape& s, int64_t positions, int64_t heads,
              int64_t dim, bool even) {
  const auto gap = [&] {
    const int64_t more = chance(random, 0.5) ? 0 : number(random, 0, 3);
    return even ? 8 * more : more;
  };
  Tensor t;
  if (chance(random, 0.7)) {
    t.strides.head = dim + gap();
    t.strides.group = heads * t.strides.head + gap();
    t.strides.sequence = s.groups * t.strides.group + gap();
    t.strides.position = s.sequences * t.strides.sequence + gap();
    t.size = positions * t.strides.position;
  } else {
    t.strides.position = dim + gap();
    t.strides.head = positions * t.strides.position + gap();
    t.strides.group = heads * t.strides.head + gap();
    t.strides.sequence = s.groups * t.strides.group + gap();
    t.size = s.sequences * t.strides.sequence;
  }
  return t;
}

/// Of `many` heads there is more than one block of keys and of queries for each multiprocessor.
Case make_case(uint64_t seed, int64_t most_positions, bool many = false) {
  Random random(seed * 6364136223846793005U + 1442695040888963407U);
  constexpr std::pair<int, int> kEven[] = {{64, 64},   {128, 128}, {96, 96}, {80, 80},
                                           {192, 128}, {128, 64},  {40, 24}, {16, 128}};
  constexpr std::pair<int, int> kAny[] = {{1, 1},   {5, 9},     {20, 20},   {65, 33},  {100, 100},
                                          {130, 7}, {192, 128}, {200, 136}, {256, 256}};
  Case c;
  AttentionShape& s = c.shape;
  c.type = kTypes[number(random, 0, 5) % 3 == 0 ? 0 : number(random, 1, 2)];
  const bool even = chance(random, 0.7);
  const auto dims = even ? kEven[number(random, 0, 7)] : kAny[number(random, 0, 8)];
  s.dim = dims.first;
  s.value_dim = dims.second;
  s.sequences = many ? number(random, 8, 12) : number(random, 1, 3);
  s.groups = many ? number(random, 8, 12) : number(random, 1, 3);
  // With 6 or more, a part of a group may have several heads.
  const int64_t per_group =
      !many && chance(random, 0.3) ? number(random, 4, 9) : number(random, 1, 3);
  s.heads = per_group * s.groups;
  s.queries = s.keys = number(random, 1, most_positions);
  s.scale = 1.3 / std::sqrt(static_cast<double>(s.dim));
  if (chance(random, 0.3)) {  // parts of a sequence; sometimes those that come later
    s.keys = number(random, 1, most_positions);
    s.query_begin = number(random, 0, most_positions);
    s.key_begin = number(random, 0, most_positions);
  }
  if (chance(random, 0.2)) s.window = number(random, 1, most_positions);
  if (chance(random, 0.35)) {
    s.document_stride = s.queries + number(random, 0, 5);
    const int64_t longest = number(random, 1, 200);
    for (int64_t b = 0; b < s.sequences; ++b) {
      int64_t begin = 0, next = number(random, 1, longest);
      for (int64_t i = 0; i < s.document_stride; ++i) {
        for (; next <= s.query_begin + i; next += number(random, 1, longest)) begin = next;
        c.documents.push_back(static_cast<int32_t>(begin));
      }
    }
  }
  if (chance(random, 0.25)) {
    s.dropout = 0.2;
    s.dropout_key = seed * 77;
  }
  s.first_head = 2;
  s.total_heads = s.heads + 5;
  s.total_positions = 2 * most_positions + s.queries + s.keys;
  if (chance(random, 0.8)) {  // where the generator's counters begin
    s.total_positions = (s.total_positions + 3) / 4 * 4;
    s.key_begin = s.key_begin / 4 * 4;
  }
  for (int64_t b = 0; b < s.sequences; ++b) c.ids.push_back(1000 * b + 7);
  c.output_type = chance(random, 0.25) ? Type::f32 : c.type;
  c.gradient_type = chance(random, 0.25) ? Type::f32 : c.type;
  c.accumulate = chance(random, 0.3);
  c.q = tensor(random, s, s.queries, per_group, s.dim, even);
  c.k = tensor(random, s, s.keys, 1, s.dim, even);
  c.v = tensor(random, s, s.keys, 1, s.value_dim, even);
  c.output = tensor(random, s, s.queries, per_group, s.value_dim, even);
  return c;
}

TEST(AttentionOnGpu, EqualsItsDefinition) {
  cuda::Device device(0);
  AttentionOnGpu attention(device);
  test::for_random_cases(200, [&](uint64_t seed) { attention.check(make_case(seed, 400)); });
}

TEST(AttentionOnGpu, OfManyHeadsEqualsItsDefinition) {
  cuda::Device device(0);
  AttentionOnGpu attention(device);
  test::for_random_cases(20, [&](uint64_t seed) { attention.check(make_case(seed, 400, true)); });
}

TEST(AttentionOnGpu, MergeEqualsItsDefinition) {
  cuda::Device device(0);
  AttentionOnGpu attention(device);
  test::for_random_cases(20, [&](uint64_t seed) { attention.check_merge(make_case(seed, 100)); });
}

TEST(AttentionOnGpu, LeavesNumbersThatAreNoneVisible) {
  cuda::Device device(0);
  AttentionOnGpu attention(device);
  for (const double dropout : {0.0, 0.2}) {
    constexpr int64_t kPositions = 200, kDim = 64;
    Case c{};
    AttentionShape& s = c.shape;
    s.sequences = 1;
    s.heads = s.groups = 2;
    s.queries = s.keys = s.total_positions = kPositions;
    s.total_heads = s.heads;
    s.dim = s.value_dim = kDim;
    s.scale = 0.125;
    s.dropout = dropout;
    s.dropout_key = 42;
    c.type = c.output_type = c.gradient_type = Type::bf16;
    c.ids = {7};
    const HeadStrides strides{.position = kDim,
                              .sequence = 2 * kPositions * kDim,
                              .group = kPositions * kDim,
                              .head = kPositions * kDim};
    c.q = c.k = c.v = c.output = {strides, 2 * kPositions * kDim};
    attention.check_nan(c);
  }
}

TEST(AttentionOnGpu, NothingIsNothing) {
  cuda::Device device(0);
  AttentionOnGpu attention(device);
  for (const bool keys : {false, true}) {
    Case c = make_case(3, 50);
    (keys ? c.shape.keys : c.shape.sequences) = 0;
    c.documents.clear();
    c.shape.document_stride = 0;
    attention.check(c);
  }
}

}  // namespace
}  // namespace ferry::kernels
