#include "ckpt/megatron/state/vocabulary.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

bool is_vocabulary_tensor(std::string_view name) {
  // In optimizer state the key follows the kind: "optimizer.state.exp_avg.output_layer.weight".
  for (std::string_view key :
       {"embedding.word_embeddings.weight", "output_layer.weight", "output_layer.bias"}) {
    if (name == key || (name.starts_with("optimizer.state.") && name.ends_with(key) &&
                        name[name.size() - key.size() - 1] == '.')) {
      return true;
    }
  }
  return false;
}

int64_t round_up(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

int64_t target_rows(int64_t rows, const RunArguments& source, const RunArguments& target,
                    std::optional<int64_t> divisor) {
  const int64_t before = source.vocabulary_divisor;
  const int64_t after = divisor.value_or(before);
  const int64_t tokens = source.vocabulary;
  if (tokens > 0 && rows == padded_vocabulary(tokens, before, source.tensor)) {
    return padded_vocabulary(tokens, after, target.tensor);
  }
  if (divisor) return round_up(rows, after * target.tensor);
  // Tokens unknown: what the rule would give for as many tokens as there are rows.
  const bool by_rule = tokens == 0 && rows % (before * source.tensor) == 0;
  return round_up(rows, by_rule ? after * target.tensor : target.tensor);
}

// The part of `recipe` that writes the first `rows` rows; what it leaves unused is dropped.
void cut_rows(StateTensor& tensor, int64_t rows, std::vector<Dropped>& dropped) {
  Dims shape = tensor.shape;
  shape[0] = rows;
  const Box kept = Box::whole(shape);
  Recipe cut;
  cut.inputs = tensor.recipe.inputs;
  for (const Move& move : tensor.recipe.moves) {
    int64_t left = move.elements();
    for (Move& part : clip_output(move, kept)) {
      left -= part.elements();
      cut.moves.push_back(std::move(part));
    }
    if (left > 0) dropped.push_back({cut.inputs.at(move.input), left});
  }
  for (Box zeros : tensor.recipe.zeros) {
    zeros.size[0] = std::min(zeros.size[0], rows - zeros.offset[0]);
    if (zeros.size[0] > 0) cut.zeros.push_back(std::move(zeros));
  }
  tensor.recipe = std::move(cut);
  tensor.shape = std::move(shape);
}

void add_rows(StateTensor& tensor, int64_t rows) {
  Box zeros = Box::whole(tensor.shape);
  zeros.offset[0] = tensor.shape[0];
  zeros.size[0] = rows - tensor.shape[0];
  tensor.recipe.zeros.push_back(std::move(zeros));
  tensor.shape[0] = rows;
}

void set_rows(StateTensor& tensor, int64_t rows, std::vector<Dropped>& dropped) {
  if (rows < tensor.shape[0]) cut_rows(tensor, rows, dropped);
  if (rows > tensor.shape[0]) add_rows(tensor, rows);
}

}  // namespace

int64_t padded_vocabulary(int64_t tokens, int64_t divisor, int64_t tensor_ranks) {
  return round_up(tokens, checked_multiply(divisor, tensor_ranks, "padding of the vocabulary"));
}

void pad_vocabulary(RunState& state, const RunArguments& source, std::optional<int64_t> divisor) {
  if (divisor && (*divisor < 1 || *divisor > kMostTokens)) {
    fail(ErrorKind::invalid, "the vocabulary cannot be padded to a multiple of {}", *divisor);
  }
  int64_t padded = 0;
  for (StateTensor& tensor : state.tensors) {
    if (!is_vocabulary_tensor(tensor.name) || tensor.shape.empty() || tensor.shape[0] < 1) continue;
    const int64_t rows = target_rows(tensor.shape[0], source, state.args.run, divisor);
    set_rows(tensor, rows, state.dropped);
    padded = rows;
  }
  if (padded == 0) return;
  Draft draft;
  const Value args = draft.copy(state.args.value);
  draft.put(args, "padded_vocab_size", draft.integer(padded));
  if (divisor) draft.put(args, "make_vocab_size_divisible_by", draft.integer(*divisor));
  state.args = std::move(draft).finish(args);
}

void set_vocabulary_rows(RunState& state, int64_t rows, const std::string& path) {
  const int64_t tokens = state.args.run.vocabulary;
  for (StateTensor& tensor : state.tensors) {
    if (!is_vocabulary_tensor(tensor.name) || tensor.shape.empty()) continue;
    const int64_t least = tokens > 0 ? tokens : tensor.shape[0];
    if (rows < least) {
      fail(ErrorKind::mismatch,
           "{}: tensor {} has {} rows of {} tokens, and this run's vocabulary has {} rows; give "
           "the vocabulary's size (--vocab-size), or --padded-vocab-size {}",
           path, tensor.name, tensor.shape[0], least, rows, tensor.shape[0]);
    }
    set_rows(tensor, rows, state.dropped);
  }
}

}  // namespace ferry
