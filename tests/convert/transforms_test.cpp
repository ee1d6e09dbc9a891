// Each transform against the plain formula, and back.
#include "convert/model/transforms.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Runs the moves of a part, element by element.
void apply(const Move& move, size_t loop, Dims in_at, Dims out_at, const std::vector<int>& in,
           const Dims& in_strides, std::vector<int>& out, const Dims& out_strides) {
  if (loop == move.loops.size()) {
    const auto position = [](const Dims& at, const Dims& strides) {
      return static_cast<size_t>(
          std::inner_product(at.begin(), at.end(), strides.begin(), int64_t{0}));
    };
    out.at(position(out_at, out_strides)) = in.at(position(in_at, in_strides));
    return;
  }
  const Loop& l = move.loops[loop];
  for (int64_t i = 0; i < l.count; ++i) {
    apply(move, loop + 1, in_at, out_at, in, in_strides, out, out_strides);
    in_at[static_cast<size_t>(l.in_axis)] += l.in_step;
    out_at[static_cast<size_t>(l.out_axis)] += l.out_step;
  }
}

std::vector<int> run(const std::vector<Move>& moves, const std::vector<int>& in,
                     const Dims& in_shape, std::vector<int> out, const Dims& out_shape) {
  for (const Move& move : moves) {
    apply(move, 0, move.in_origin, move.out_origin, in, row_major_strides(in_shape), out,
          row_major_strides(out_shape));
  }
  return out;
}

struct Result {
  Dims shape;
  std::vector<int> values;
};

// The parts of a tensor that counts up from 0; every part's inverse must restore its elements.
std::vector<Result> transform(Transform kind, const Dims& shape, const Architecture& a,
                              const std::string& name = "x") {
  Rule rule;
  rule.transform = kind;
  Link link{&rule, nullptr, name, {}, shape};
  std::vector<int> source(static_cast<size_t>(element_count(shape, name)));
  std::iota(source.begin(), source.end(), 0);
  std::vector<Result> results;
  std::vector<int> restored(source.size(), -1);
  for (const Part& part : parts_of(link, a)) {
    const auto elements = static_cast<size_t>(element_count(part.shape, name));
    results.push_back(
        {part.shape, run(part.moves, source, shape, std::vector<int>(elements, -1), part.shape)});
    std::vector<Move> back;
    for (const Move& move : part.moves) back.push_back(move.inverse());
    restored = run(back, results.back().values, part.shape, restored, shape);
  }
  if (kind == Transform::vocabulary) {
    for (size_t i = 0; i < restored.size(); ++i) {
      const bool kept = i < static_cast<size_t>(a.vocab * (shape.size() > 1 ? shape[1] : 1));
      EXPECT_EQ(restored[i], kept ? source[i] : -1);
    }
  } else {
    EXPECT_EQ(restored, source);
  }
  return results;
}

TEST(Transforms, CopyKeepsEverything) {
  const auto parts = transform(Transform::copy, {2, 3}, {});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(Transforms, VocabularyLosesTheLastRows) {
  Architecture a;
  a.vocab = 2;
  const auto parts = transform(Transform::vocabulary, {4, 3}, a);
  EXPECT_EQ(parts[0].shape, (Dims{2, 3}));
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

// Rows of a query group: its q heads, its k, its v.
TEST(Transforms, QkvIsTakenApartByQueryGroup) {
  Architecture a;
  a.heads = 4;
  a.groups = 2;
  a.head_dim = 3;
  for (const int64_t width : {int64_t{0}, int64_t{5}}) {  // a bias, a weight
    const Dims shape = width > 0 ? Dims{24, width} : Dims{24};
    const int64_t columns = width > 0 ? width : 1;
    const auto parts = transform(Transform::qkv, shape, a);
    ASSERT_EQ(parts.size(), 3u);
    const auto row = [&](size_t part, int64_t r) {
      return parts[part].values[static_cast<size_t>(r * columns)] / columns;
    };
    EXPECT_EQ(parts[0].shape[0], 12);
    EXPECT_EQ(parts[1].shape[0], 6);
    EXPECT_EQ(parts[2].shape[0], 6);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t r = 0; r < 3; ++r) {
        EXPECT_EQ(row(0, head * 3 + r), head / 2 * 12 + head % 2 * 3 + r);
      }
    }
    for (int64_t group = 0; group < 2; ++group) {
      for (int64_t r = 0; r < 3; ++r) {
        EXPECT_EQ(row(1, group * 3 + r), group * 12 + 6 + r);
        EXPECT_EQ(row(2, group * 3 + r), group * 12 + 9 + r);
      }
    }
  }
}

TEST(Transforms, GateIsTheFirstHalfAndUpTheSecond) {
  const auto parts = transform(Transform::gate_up, {4, 2}, {}, "decoder.layers.0.mlp.linear_fc1.x");
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(parts[1].values, (std::vector<int>{4, 5, 6, 7}));
}

TEST(Transforms, GateAndUpMayAlternateInBlocks) {
  Architecture a;
  a.expert_glu_block = 2;
  const auto parts =
      transform(Transform::gate_up, {8, 1}, a, "decoder.layers.0.mlp.experts.experts.1.x");
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(parts[1].values, (std::vector<int>{2, 3, 6, 7}));
  // Only for the experts: shared ones have a setting of their own.
  const auto shared =
      transform(Transform::gate_up, {8, 1}, a, "decoder.layers.0.mlp.shared_experts.x");
  EXPECT_EQ(shared[0].values, (std::vector<int>{0, 1, 2, 3}));
}

// Each rank of experts has blocks of its own rows in turn; a save puts the first halves of all
// ranks before the second ones.
TEST(Transforms, GateAndUpAlternateOnEachRankThatSaved) {
  for (const int64_t ranks : {1, 2, 3}) {
    for (const int64_t blocks : {1, 2, 3, 4}) {
      const int64_t block = 2, rows = blocks * block;  // of gate on a rank
      std::vector<std::vector<int64_t>> halves(2);     // of all ranks: labels, gate 1.., up -1..
      for (int64_t rank = 0; rank < ranks; ++rank) {
        std::vector<int64_t> local;
        for (int64_t b = 0; b < blocks; ++b) {
          for (const int64_t sign : {1, -1}) {
            for (int64_t r = 0; r < block; ++r) {
              local.push_back(sign * (rank * rows + b * block + r + 1));
            }
          }
        }
        for (int64_t i = 0; i < 2 * rows; ++i) {
          halves[static_cast<size_t>(i / rows)].push_back(local[static_cast<size_t>(i)]);
        }
      }
      std::vector<int64_t> stored = halves[0];
      stored.insert(stored.end(), halves[1].begin(), halves[1].end());
      Architecture a;
      a.expert_glu_block = block;
      a.expert_glu_ranks = ranks;
      a.glu_ranks = 7;  // of what is not a routed expert
      const auto parts = transform(Transform::gate_up, {2 * ranks * rows, 1}, a,
                                   "decoder.layers.0.mlp.experts.experts.1.x");
      for (int64_t i = 0; i < ranks * rows; ++i) {
        EXPECT_EQ(stored[static_cast<size_t>(parts[0].values[static_cast<size_t>(i)])], i + 1);
        EXPECT_EQ(stored[static_cast<size_t>(parts[1].values[static_cast<size_t>(i)])], -i - 1);
      }
    }
  }
  Architecture dense;
  dense.dense_glu_block = 1;
  dense.glu_ranks = 2;
  const auto parts = transform(Transform::gate_up, {4, 1}, dense, "decoder.layers.0.mlp.x");
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 1}));
  EXPECT_EQ(parts[1].values, (std::vector<int>{2, 3}));
}

TEST(Transforms, GateAndUpBlocksMustDivideTheRows) {
  Architecture a;
  a.expert_glu_block = 3;
  Rule rule;
  rule.transform = Transform::gate_up;
  const Link link{&rule, nullptr, "decoder.layers.0.mlp.experts.experts.1.x", {}, {8, 1}};
  EXPECT_THROW(parts_of(link, a), Error);
}

// One name: what would be several tensors is one, in their order.
TEST(Transforms, OneTensorMayHoldAllParts) {
  Architecture a;
  a.heads = a.groups = 2;
  a.head_dim = 1;
  Rule rule;
  rule.transform = Transform::qkv;
  const Link qkv{&rule, nullptr, "x", {"qkv"}, {6, 2}};
  const std::vector<Part> parts = parts_of(qkv, a);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].shape, (Dims{6, 2}));
  std::vector<int> source(12);
  std::iota(source.begin(), source.end(), 0);
  EXPECT_EQ(run(parts[0].moves, source, {6, 2}, std::vector<int>(12, -1), {6, 2}),
            (std::vector<int>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

TEST(Transforms, GateAndUpMayBeColumns) {
  const std::string fc1 = "decoder.layers.0.mlp.experts.experts.1.linear_fc1.x";
  const auto halves = transform(Transform::gate_up_transpose, {4, 2}, {}, fc1);
  ASSERT_EQ(halves.size(), 1u);
  EXPECT_EQ(halves[0].shape, (Dims{2, 4}));
  EXPECT_EQ(halves[0].values, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  const auto in_turn = transform(Transform::gate_up_columns, {4, 2}, {}, fc1);
  EXPECT_EQ(in_turn[0].shape, (Dims{2, 4}));
  EXPECT_EQ(in_turn[0].values, (std::vector<int>{0, 4, 2, 6, 1, 5, 3, 7}));
  EXPECT_EQ(transform(Transform::gate_up_columns, {4}, {}, fc1)[0].values,
            (std::vector<int>{0, 2, 1, 3}));
  // Rows that alternate in blocks in Megatron, too.
  Architecture a;
  a.expert_glu_block = 1;
  EXPECT_EQ(transform(Transform::gate_up_columns, {4, 1}, a, fc1)[0].values,
            (std::vector<int>{0, 1, 2, 3}));
}

TEST(Transforms, OneTensorMayHoldAllExperts) {
  Architecture a;
  a.experts = 3;
  Rule rule;
  rule.transform = Transform::transpose;
  Link link{&rule, nullptr, "x", {"down_proj"}, {2, 2}};
  link.expert = 1;
  const std::vector<Part> parts = parts_of(link, a);
  EXPECT_EQ(parts[0].shape, (Dims{3, 2, 2}));
  EXPECT_EQ(run(parts[0].moves, {1, 2, 3, 4}, {2, 2}, std::vector<int>(12, 0), {3, 2, 2}),
            (std::vector<int>{0, 0, 0, 0, 1, 3, 2, 4, 0, 0, 0, 0}));
}

TEST(Transforms, TransposeExchangesTheAxes) {
  const auto parts = transform(Transform::transpose, {2, 3}, {});
  EXPECT_EQ(parts[0].shape, (Dims{3, 2}));
  EXPECT_EQ(parts[0].values, (std::vector<int>{0, 3, 1, 4, 2, 5}));
}

TEST(Transforms, MatricesOfExpertsMayBeEitherWay) {
  Architecture a;
  a.experts = 2;
  Rule rule;
  rule.transform = Transform::gate_up_transpose;
  Link link{&rule, nullptr, "decoder.layers.0.mlp.experts.experts.1.x", {"gate_up_proj"}, {4, 3}};
  EXPECT_FALSE(has_transposed_experts(link));
  link.expert = 1;
  ASSERT_TRUE(has_transposed_experts(link));
  const Part part = with_matrices_exchanged(parts_of(link, a).front());
  EXPECT_EQ(part.shape, (Dims{2, 4, 3}));
  std::vector<int> source(12), expected(24, -1);
  std::iota(source.begin(), source.end(), 0);
  std::iota(expected.begin() + 12, expected.end(), 0);
  EXPECT_EQ(run(part.moves, source, {4, 3}, std::vector<int>(24, -1), {2, 4, 3}), expected);
}

TEST(Transforms, HalvesOfColumnsChangePlaces) {
  EXPECT_EQ(transform(Transform::swap_halves, {2, 4}, {})[0].values,
            (std::vector<int>{2, 3, 0, 1, 6, 7, 4, 5}));
}

// GPT-2: columns [all q; all k; all v], from rows by head [q, k, v].
TEST(Transforms, QkvTransposeGathersColumns) {
  Architecture a;
  a.heads = 2;
  a.groups = 2;
  a.head_dim = 2;
  const std::vector<int> order = {0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11};
  EXPECT_EQ(transform(Transform::qkv_transpose, {12}, a)[0].values, order);
  const auto weight = transform(Transform::qkv_transpose, {12, 3}, a)[0];
  EXPECT_EQ(weight.shape, (Dims{3, 12}));
  for (size_t in = 0; in < 3; ++in) {
    for (size_t out = 0; out < 12; ++out) {
      EXPECT_EQ(weight.values[in * 12 + out], order[out] * 3 + static_cast<int>(in));
    }
  }
}

TEST(Transforms, SingleElementsLoseTheirShape) {
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{1, 1}}) {
    const auto parts = transform(Transform::single, shape, {});
    EXPECT_EQ(parts[0].shape, Dims{1});
    EXPECT_EQ(parts[0].values, std::vector<int>{0});
  }
}

}  // namespace
}  // namespace ferry
