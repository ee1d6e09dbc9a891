#include "trainer/model/prediction.h"

#include <fmt/format.h>

#include "trainer/model/pass/recompute.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

namespace {

std::string name_of(int64_t number, std::string_view suffix) {
  return fmt::format("mtp.layers.{}.{}", number, suffix);
}

// One of the two halves of rows of 2 · width elements.
void copy_half(Pass& pass, int64_t width, ConstArray x, int64_t x_stride, Array y,
               int64_t y_stride) {
  pass.kernels.run(kernels::CopyRows{.rows = pass.own_rows(),
                                     .width = width,
                                     .x_stride = x_stride,
                                     .y_stride = y_stride,
                                     .x = x,
                                     .y = y});
}

// A layer with its tokens, as recompute.h takes a module.
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

// A layer that predicts once more drops out anew.
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

}  // namespace ferry
