#include "trainer/model/output.h"

#include <algorithm>

#include "trainer/model/linear.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Matmul;
using kernels::Type;

namespace {

// Rows of a block: blocks of one size rather than full ones and a rest, which would cost as much,
// and multiples of what products like. On the host a block's logits are soon used again; a GPU
// would rather read and write the weights' gradients less often.
int64_t rows_of_block(int64_t rows, int64_t row_bytes, kernels::DeviceKind kind) {
  const bool is_host = kind == kernels::DeviceKind::host;
  const int64_t block_bytes = int64_t{is_host ? 64 : 1024} << 20, grain = is_host ? 16 : 128;
  const int64_t most = std::max<int64_t>(block_bytes / row_bytes, 1);
  const int64_t blocks = (rows + most - 1) / most;
  const int64_t even = (rows + blocks - 1) / blocks;
  return (even + grain - 1) / grain * grain;
}

}  // namespace

OutputLayer::OutputLayer(const ParameterSet& parameters, const Architecture& a,
                         int64_t tensor_ranks)
    : hidden_(a.hidden), columns_(a.padded_vocab / tensor_ranks) {
  // The last of several stages has a copy of tied embeddings.
  const bool has_output = parameters.has("output_layer.weight");
  weight_ = parameters.get(has_output ? "output_layer.weight" : "embedding.word_embeddings.weight",
                           columns_ * hidden_);
}

void OutputLayer::forward(Pass& pass, const Targets& targets, ConstArray x, Array dx,
                          Array logits) const {
  const ArenaScope scope(pass.scratch);
  const bool has_backward = targets.loss_weight != nullptr;
  const ConstArray all = all_rows(pass, x, hidden_);
  const bool shares_rows = pass.ranks.sequence_parallel;
  const Array dall =
      shares_rows && has_backward ? pass.scratch.take(pass.rows() * hidden_, x.type) : dx;
  const int64_t block =
      rows_of_block(pass.rows(), columns_ * size_bytes(x.type), pass.kernels.kind());
  for (int64_t first = 0; first < pass.rows(); first += block) {
    const int64_t rows = std::min(block, pass.rows() - first);
    forward_block(pass, targets, first, rows, all.from(first * hidden_),
                  has_backward ? dall.from(first * hidden_) : Array(), logits);
  }
  if (has_backward) sum_rows(pass, dall, dx, hidden_);
}

// Of a vocabulary of which each tensor rank has a part.
void OutputLayer::shared_cross_entropy(Pass& pass, int64_t rows, const int32_t* labels,
                                       const float* weight, Array logits, float* loss) const {
  const ArenaScope scope(pass.scratch);
  kernels::Kernels& kernels = pass.kernels;
  Communicator& tensor = pass.ranks.tensor;
  auto* const maximum = pass.scratch.take<float>(rows);
  auto* const sums = pass.scratch.take<float>(2 * rows);  // of exponentials; the targets' logits
  const int64_t first_column = tensor.rank() * columns_;
  kernels.run(kernels::LogitMaximum{
      .rows = rows, .columns = columns_, .logits = logits, .maximum = maximum});
  tensor.wait(tensor.all_reduce_max(maximum, rows));
  kernels.run(kernels::LogitSums{.rows = rows,
                                 .columns = columns_,
                                 .first_column = first_column,
                                 .logits = logits,
                                 .targets = labels,
                                 .maximum = maximum,
                                 .sum = sums,
                                 .target = sums + rows});
  tensor.wait(tensor.all_reduce(Array(sums), 2 * rows));
  kernels.run(kernels::CrossEntropyGradient{.rows = rows,
                                            .columns = columns_,
                                            .first_column = first_column,
                                            .logits = logits,
                                            .targets = labels,
                                            .maximum = maximum,
                                            .sum = sums,
                                            .target = sums + rows,
                                            .weight = weight,
                                            .loss = loss,
                                            .dlogits = logits});
}

void OutputLayer::forward_block(Pass& pass, const Targets& targets, int64_t first, int64_t rows,
                                ConstArray x, Array dx, Array kept) const {
  const ArenaScope scope(pass.scratch);
  kernels::Kernels& kernels = pass.kernels;
  Communicator& tensor = pass.ranks.tensor;
  const Array logits = pass.scratch.take(rows * columns_, x.type);
  auto* const loss = pass.scratch.take<float>(rows);
  const int32_t* const labels = targets.labels + first;
  kernels.run(Matmul{.m = rows,
                     .n = columns_,
                     .k = hidden_,
                     .a = x,
                     .b = weight_.value,
                     .c = logits,
                     .b_transposed = true});
  if (kept) {
    kernels.run(
        kernels::Copy{.count = rows * columns_, .x = logits, .y = kept.from(first * columns_)});
  }
  const float* const weight =
      targets.loss_weight == nullptr ? nullptr : targets.loss_weight + first;
  if (tensor.size() == 1) {
    kernels.run(kernels::CrossEntropy{.rows = rows,
                                      .columns = columns_,
                                      .logits = logits,
                                      .targets = labels,
                                      .weight = weight,
                                      .loss = loss,
                                      .dlogits = logits});
  } else {
    shared_cross_entropy(pass, rows, labels, weight, logits, loss);
  }
  kernels.run(kernels::WeightedSum{
      .count = rows, .x = loss, .weight = targets.loss_mask + first, .sum = targets.loss_sum});
  if (targets.loss_weight == nullptr) return;
  kernels.run(
      Matmul{.m = rows, .n = hidden_, .k = columns_, .a = logits, .b = weight_.value, .c = dx});
  const kernels::Gradient gradient = weight_.take_gradient();
  kernels.run(Matmul{.m = columns_,
                     .n = hidden_,
                     .k = rows,
                     .a = logits,
                     .b = x,
                     .c = gradient.array,
                     .a_transposed = true,
                     .accumulate = gradient.accumulate});
}

}  // namespace ferry
