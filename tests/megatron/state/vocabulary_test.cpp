// The vocabulary's padding, made anew for other tensor ranks.
#include "ckpt/megatron/state/vocabulary.h"

#include <gtest/gtest.h>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

LoadedValue arguments(int64_t tokens, int64_t divisor, int64_t tensor) {
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  if (tokens > 0) draft.put(args, "vocab_size", draft.integer(tokens));
  if (divisor > 0) draft.put(args, "make_vocab_size_divisible_by", draft.integer(divisor));
  draft.put(args, "tensor_model_parallel_size", draft.integer(tensor));
  return std::move(draft).finish(args);
}

RunArguments run_of(int64_t tokens, int64_t divisor, int64_t tensor) {
  return read_run_arguments(arguments(tokens, divisor, tensor).value);
}

// Embedding, its moment and a tensor that has nothing to do with the vocabulary.
RunState state_with(int64_t rows, const LoadedValue& args) {
  RunState state;
  for (const char* name : {"embedding.word_embeddings.weight",
                           "optimizer.state.exp_avg.embedding.word_embeddings.weight",
                           "decoder.layers.0.mlp.linear_fc1.weight"}) {
    const auto number = static_cast<uint32_t>(state.tensors.size());
    state.tensors.push_back(
        {name, DType::f32, {rows, 3}, {{number}, {copy_all({rows, 3})}, {}}, Role::model});
  }
  state.args = args;
  return state;
}

int64_t rows_of(int64_t rows, const LoadedValue& source, const LoadedValue& target) {
  RunState state = state_with(rows, target);
  pad_vocabulary(state, read_run_arguments(source.value), std::nullopt);
  EXPECT_EQ(state.tensors[1].shape, state.tensors[0].shape);
  EXPECT_EQ(state.tensors[2].shape[0], rows);
  EXPECT_EQ(state.args.value.get("padded_vocab_size").integer(), state.tensors[0].shape[0]);
  return state.tensors[0].shape[0];
}

TEST(Vocabulary, IsPaddedToAMultipleOfTheDivisorTimesTensorRanks) {
  EXPECT_EQ(padded_vocabulary(250, 32, 2), 256);
  EXPECT_EQ(padded_vocabulary(257, 32, 2), 320);
  EXPECT_EQ(padded_vocabulary(256, 128, 2), 256);
}

TEST(Vocabulary, IsPaddedAnewWhereTheRuleExplainsThePadding) {
  const LoadedValue source = arguments(250, 32, 2);
  EXPECT_EQ(rows_of(256, source, arguments(250, 32, 2)), 256);
  EXPECT_EQ(rows_of(256, source, arguments(250, 32, 16)), 512);
  EXPECT_EQ(rows_of(512, arguments(250, 32, 16), arguments(250, 32, 1)), 256);
}

TEST(Vocabulary, KeepsAPaddingThatTheRuleDoesNotExplain) {
  EXPECT_EQ(rows_of(300, arguments(250, 32, 2), arguments(250, 32, 4)), 300);  // by hand
  EXPECT_EQ(rows_of(300, arguments(250, 32, 2), arguments(250, 32, 8)), 304);
  EXPECT_EQ(rows_of(256, arguments(0, 32, 2), arguments(0, 32, 1)), 256);  // tokens unknown
  EXPECT_EQ(rows_of(256, arguments(0, 32, 2), arguments(0, 32, 16)), 512);
}

TEST(Vocabulary, DropsAndAddsRowsInTheOpen) {
  RunState state = state_with(512, arguments(250, 32, 1));
  pad_vocabulary(state, run_of(250, 32, 16), std::nullopt);
  ASSERT_EQ(state.dropped.size(), 2);
  EXPECT_EQ(state.dropped[0].entry, 0);
  EXPECT_EQ(state.dropped[0].elements, 256 * 3);
  EXPECT_EQ(state.tensors[0].recipe.moves[0].elements(), 256 * 3);
  state = state_with(256, arguments(250, 32, 16));
  pad_vocabulary(state, run_of(250, 32, 2), std::nullopt);
  EXPECT_TRUE(state.dropped.empty());
  ASSERT_EQ(state.tensors[0].recipe.zeros.size(), 1);
  EXPECT_EQ(state.tensors[0].recipe.zeros[0], (Box{{256, 0}, {256, 3}}));
}

TEST(Vocabulary, TakesAnotherDivisor) {
  RunState state = state_with(256, arguments(250, 32, 2));
  pad_vocabulary(state, run_of(250, 32, 2), 128);
  EXPECT_EQ(state.args.value.get("make_vocab_size_divisible_by").integer(), 128);
  EXPECT_EQ(state.tensors[0].shape[0], 256);
  pad_vocabulary(state, run_of(250, 128, 2), 100);
  EXPECT_EQ(state.tensors[0].shape[0], 400);
  EXPECT_THROW(pad_vocabulary(state, state.args.run, 0), Error);
}

}  // namespace
}  // namespace ferry
