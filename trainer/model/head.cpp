#include "trainer/model/head.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/linear.h"
#include "trainer/model/pass/recompute.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;
using kernels::Matmul;
using kernels::Type;

namespace {

// Rows per block: equal blocks, since a partial one would cost as much as a full one, in multiples
// that suit matrix products. On the host, small blocks keep logits in the cache; on a GPU, large
// ones read and write the weight gradients less often.
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
  // With several stages, the last one has a copy of tied embeddings.
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

// For a vocabulary that is split over tensor ranks.
void OutputLayer::shared_cross_entropy(Pass& pass, int64_t rows, const int32_t* labels,
                                       const float* weight, Array logits, float* loss) const {
  const ArenaScope scope(pass.scratch);
  kernels::Kernels& kernels = pass.kernels;
  Communicator& tensor = pass.ranks.tensor;
  auto* const maximum = pass.scratch.take<float>(rows);
  auto* const sums =
      pass.scratch.take<float>(2 * rows);  // sums of exponentials; the targets' logits
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

using kernels::Array;
using kernels::ConstArray;

namespace {

std::string name_of(int64_t number, std::string_view suffix) {
  return fmt::format("mtp.layers.{}.{}", number, suffix);
}

// Copies one of the two halves of rows of 2 · width elements.
void copy_half(Pass& pass, int64_t width, ConstArray x, int64_t x_stride, Array y,
               int64_t y_stride) {
  pass.kernels.run(kernels::CopyRows{.rows = pass.own_rows(),
                                     .width = width,
                                     .x_stride = x_stride,
                                     .y_stride = y_stride,
                                     .x = x,
                                     .y = y});
}

// A layer with its tokens as a module for recompute.h.
struct Step {
  using Saved = PredictionLayer::Saved;

  const PredictionLayer& layer;
  const int32_t* tokens;

  Saved forward(Pass& pass, ConstArray x, Array y) const {
    return layer.forward(pass, tokens, x, y);
  }
  void backward(Pass& pass, const Saved& saved, ConstArray x, ConstArray dy, Array dx) const {
    layer.backward(pass, tokens, saved, x, dy, dx);
  }
};

bool is_repeated(const Pass& pass) { return pass.recompute.layers != Recompute::Layers::none; }

}  // namespace

PredictionLayer::PredictionLayer(const ParameterSet& parameters, const Architecture& a,
                                 int64_t number, const ModelOptions& options,
                                 kernels::Kernels& kernels)
    : embedding_(parameters, a, options.tensor_ranks),
      embedding_norm_(parameters, name_of(number, "enorm"), a.hidden, a),
      hidden_norm_(parameters, name_of(number, "hnorm"), a.hidden, a),
      final_norm_(parameters, name_of(number, "final_layernorm"), a.hidden, a),
      linear_(parameters, name_of(number, "eh_proj.weight"), 2 * a.hidden, a.hidden,
              options.tensor_ranks),
      layer_(parameters, name_of(number, "transformer_layer"), a, a.layers + number, options,
             kernels),
      hidden_(a.hidden),
      number_(number) {}

PredictionLayer::Saved PredictionLayer::forward(Pass& pass, const int32_t* tokens, ConstArray x,
                                                Array y) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  const NormRows rows{pass.own_rows()};
  saved.embedded = pass.kept.take(count, x.type);
  saved.concatenated = pass.kept.take(2 * count, x.type);
  saved.joined = pass.kept.take(count, x.type);
  saved.output = pass.kept.take(count, x.type);
  embedding_.forward(pass, embedded(tokens), saved.embedded);
  const ArenaScope scope(pass.scratch);
  const Array normed = pass.scratch.take(count, x.type);
  saved.embedding_norm = embedding_norm_.forward(pass, rows, saved.embedded, normed);
  copy_half(pass, hidden_, normed, hidden_, saved.concatenated, 2 * hidden_);
  saved.hidden_norm = hidden_norm_.forward(pass, rows, x, normed);
  copy_half(pass, hidden_, normed, hidden_, saved.concatenated.from(hidden_), 2 * hidden_);
  linear_.forward(pass, saved.concatenated, saved.joined);
  saved.layer = layer_.forward(pass, saved.joined, saved.output);
  saved.final_norm = final_norm_.forward(pass, rows, saved.output, y);
  return saved;
}

void PredictionLayer::backward(Pass& pass, const int32_t* tokens, const Saved& saved, ConstArray x,
                               ConstArray dy, Array dx) const {
  const ArenaScope scope(pass.scratch);
  const int64_t count = pass.own_rows() * hidden_;
  const NormRows rows{pass.own_rows()};
  const Array d = pass.scratch.take(count, dx.type);
  final_norm_.backward(pass, rows, saved.final_norm, saved.output, dy, d, false);
  layer_.backward(pass, saved.layer, saved.joined, d);
  const Array dconcatenated = pass.scratch.take(2 * count, dx.type);
  linear_.backward(pass, {}, saved.concatenated, d, dconcatenated, false);
  const Array half = pass.scratch.take(count, dx.type);
  copy_half(pass, hidden_, dconcatenated.from(hidden_), 2 * hidden_, half, hidden_);
  hidden_norm_.backward(pass, rows, saved.hidden_norm, x, half, dx, false);
  copy_half(pass, hidden_, dconcatenated, 2 * hidden_, half, hidden_);
  embedding_norm_.backward(pass, rows, saved.embedding_norm, saved.embedded, half, d, false);
  embedding_.backward(pass, embedded(tokens), d);
}

Predictions::Predictions(const ParameterSet& parameters, const Architecture& a,
                         const ModelOptions& options, kernels::Kernels& kernels)
    : depths_(static_cast<size_t>(options.predictions)), hidden_(a.hidden) {
  for (int64_t number = 0; number < a.mtp_layers; ++number) {
    layers_.emplace_back(parameters, a, number, options, kernels);
  }
}

// A layer that is used again has new dropout.
Pass Predictions::pass_of(const Pass& pass, size_t depth) const {
  Pass own = pass;
  if (is_again(depth)) own.dropout_key = kernels::mix_key(pass.dropout_key, depth);
  return own;
}

Predictions::Saved Predictions::forward(Pass& pass, const MicroBatch& batch,
                                        const OutputLayer& output, ConstArray x) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  for (size_t i = 0; i < depths_; ++i) {
    Pass own = pass_of(pass, i);
    const MicroBatch::Prediction& prediction = batch.predictions[i];
    Saved::Step step{pass.kept.take(count, x.type), pass.kept.take(count, x.type), {}};
    step.layer =
        forward_of(Step{layer(i), prediction.tokens}, is_repeated(pass), own, x, step.output);
    output.forward(pass, prediction.targets, step.output, step.doutput);
    x = step.output;
    saved.steps.push_back(std::move(step));
  }
  return saved;
}

void Predictions::backward(Pass& pass, const MicroBatch& batch, const Saved& saved, ConstArray x,
                           Array dx) const {
  const ArenaScope scope(pass.scratch);
  const int64_t count = pass.own_rows() * hidden_;
  const Array d = pass.scratch.take(count, dx.type);
  for (size_t i = saved.steps.size(); i-- > 0;) {
    const Saved::Step& step = saved.steps[i];
    const ConstArray input = i == 0 ? x : ConstArray(saved.steps[i - 1].output);
    const Array dinput = i == 0 ? dx : saved.steps[i - 1].doutput;
    Pass own = pass_of(pass, i);
    backward_of(Step{layer(i), batch.predictions[i].tokens}, is_repeated(pass), own, step.layer,
                hidden_, input, step.doutput, d);
    pass.kernels.run(kernels::Add{.count = count, .a = dinput, .b = d, .y = dinput});
  }
}

using kernels::Array;
using kernels::ConstArray;

Head::Head(const ParameterSet& parameters, const Architecture& a, const ModelOptions& options,
           kernels::Kernels& kernels)
    : norm_(parameters, "decoder.final_layernorm", a.hidden, a),
      output_(parameters, a, options.tensor_ranks),
      predictions_(parameters, a, options, kernels),
      hidden_(a.hidden) {}

Head::Saved Head::forward(Pass& pass, const MicroBatch& batch, ConstArray x) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  if (batch.targets.loss_weight != nullptr) saved.dnormed = pass.kept.take(count, x.type);
  const ArenaScope scope(pass.scratch);
  saved.normed = (predictions_ ? pass.kept : pass.scratch).take(count, x.type);
  saved.norm = norm_.forward(pass, {pass.own_rows()}, x, saved.normed);
  output_.forward(pass, batch.targets, saved.normed, saved.dnormed, batch.logits);
  if (predictions_ && pass.trains) {
    saved.predictions = predictions_.forward(pass, batch, output_, saved.normed);
  }
  return saved;
}

void Head::backward(Pass& pass, const MicroBatch& batch, const Saved& saved, ConstArray x,
                    Array dx) const {
  if (predictions_) {
    predictions_.backward(pass, batch, saved.predictions, saved.normed, saved.dnormed);
  }
  norm_.backward(pass, {pass.own_rows()}, saved.norm, x, saved.dnormed, dx, false);
}

}  // namespace ferry
