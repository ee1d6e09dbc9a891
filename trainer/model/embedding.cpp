#include "trainer/model/embedding.h"

#include "trainer/model/linear.h"
#include "trainer/model/norm.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

namespace {

// Identifies its dropout: layers number theirs from 0.
uint64_t place_of(const Embedding::Input& input) { return ~static_cast<uint64_t>(input.depth); }

}  // namespace

Embedding::Embedding(const ParameterSet& parameters, const Architecture& a, int64_t tensor_ranks)
    : hidden_(a.hidden), rows_(a.padded_vocab / tensor_ranks), positions_count_(a.positions) {
  words_ = parameters.get("embedding.word_embeddings.weight", rows_ * hidden_);
  if (a.position_kind == Positions::learned) {
    positions_ = parameters.get("embedding.position_embeddings.weight", a.positions * hidden_);
  }
}

void Embedding::forward(Pass& pass, const Input& input, Array y) const {
  const ArenaScope scope(pass.scratch);
  const bool shares_rows = pass.ranks.sequence_parallel;
  const Array all = shares_rows ? pass.scratch.take(pass.rows() * hidden_, y.type) : y;
  pass.kernels.run(kernels::EmbeddingForward{.count = pass.rows(),
                                             .width = hidden_,
                                             .first = pass.ranks.tensor.rank() * rows_,
                                             .rows = rows_,
                                             .ids = input.tokens,
                                             .table = words_.value,
                                             .y = all});
  sum_rows(pass, all, y, hidden_);
  if (positions_) {
    const int64_t first = shares_rows ? pass.ranks.tensor.rank() * pass.own_rows() : 0;
    pass.kernels.run(kernels::EmbeddingForward{.count = pass.own_rows(),
                                               .width = hidden_,
                                               .rows = positions_count_,
                                               .ids = input.positions + first,
                                               .table = positions_.value,
                                               .y = y,
                                               .accumulate = true});
  }
  add_residual(pass, hidden_, {{}, y, place_of(input)}, y);
}

void Embedding::backward(Pass& pass, const Input& input, Array dy) const {
  const ArenaScope scope(pass.scratch);
  const ConstArray all =
      all_rows(pass, change_gradient(pass, place_of(input), hidden_, dy), hidden_);
  pass.kernels.run(
      kernels::EmbeddingBackward{.count = pass.rows(),
                                 .width = hidden_,
                                 .first = pass.ranks.tensor.rank() * rows_,
                                 .rows = rows_,
                                 .ids = input.tokens,
                                 .dy = all,
                                 .dtable = words_.take_cleared_gradient(pass.kernels)});
  if (positions_) {
    pass.kernels.run(
        kernels::EmbeddingBackward{.count = pass.rows(),
                                   .width = hidden_,
                                   .rows = positions_count_,
                                   .ids = input.positions,
                                   .dy = all,
                                   .dtable = positions_.take_cleared_gradient(pass.kernels)});
  }
}

}  // namespace ferry
