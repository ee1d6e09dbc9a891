#include "trainer/model/model_chunk.h"

#include <fmt/format.h>

#include <utility>

#include "ckpt/base/error.h"
#include "trainer/model/pass/recompute.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

namespace {

// Prediction layers take the hidden states of the decoder's last layer and use the output layer:
// all of these must be in one chunk.
void check_predictions(const Architecture& a, const StageContents& contents) {
  const int64_t expected = contents.last ? a.mtp_layers : 0;
  if (a.mtp_layers == 0 ||
      (contents.mtp_layers == expected && contents.final_norm == contents.last)) {
    return;
  }
  fail(ErrorKind::unsupported,
       "--mtp-num-layers: the decoder's last layer, all {} prediction layers and the loss must be "
       "on the last pipeline stage: split the layers differently, or use fewer stages",
       a.mtp_layers);
}

}  // namespace

ModelChunk::ModelChunk(const ParameterSet& parameters, const Architecture& a,
                       const StageContents& contents, const ModelOptions& options,
                       kernels::Kernels& kernels)
    : contents_(contents), type_(options.type), hidden_(a.hidden) {
  check_predictions(a, contents);
  if (contents.first) embedding_ = Embedding(parameters, a, options.tensor_ranks);
  for (int64_t i = 0; i < contents.layers; ++i) {
    const int64_t layer = contents.first_layer + i;
    layers_.emplace_back(parameters, fmt::format("decoder.layers.{}", layer), a, layer, options,
                         kernels);
  }
  if (contents.last) head_ = Head(parameters, a, options, kernels);
}

std::vector<const Moe*> ModelChunk::experts() const {
  std::vector<const Moe*> experts;
  const auto add = [&](const Layer& layer) {
    if (layer.experts() != nullptr) experts.push_back(layer.experts());
  };
  for (const Layer& layer : layers_) add(layer);
  for (const PredictionLayer& prediction : head_.predictions().layers()) add(prediction.layer());
  return experts;
}

// A layer's input is kept in pass.kept; its first norm computes it from the previous layer's
// residual.
std::vector<ModelChunk::Block::Step> ModelChunk::forward_block(Pass& pass, const Block& block,
                                                               Array output) const {
  std::vector<Block::Step> steps;
  const ArenaScope scope(pass.scratch);
  const int64_t count = pass.own_rows() * hidden_;
  const Array change = pass.scratch.take(count, type_);
  PendingResidual sum;
  for (int64_t i = block.first; i < block.end; ++i) {
    pass.begin_part(contents_.first_layer + i);
    const Layer& layer = layers_[static_cast<size_t>(i)];
    const Array x = i == block.first ? block.input : pass.kept.take(count, type_);
    steps.push_back({x, layer.forward(pass, sum, x, change)});
    sum = layer.output(steps.back().saved, change);
  }
  add_residual(pass, hidden_, sum, output);
  return steps;
}

ModelChunk::Saved ModelChunk::forward(Pass& pass, const MicroBatch& batch, ConstArray input,
                                      Array output) const {
  Saved saved;
  pass.begin_part(PassWatcher::kRest);
  const int64_t count = pass.own_rows() * hidden_;
  // The inputs of all layers but the first are outputs of previous layers and are not modified.
  Array x(const_cast<void*>(input.data), type_);
  if (contents_.first) {
    x = pass.kept.take(count, type_);
    embedding_.forward(pass, {batch.tokens, batch.positions}, x);
  }
  const auto layers = static_cast<int64_t>(layers_.size());
  for (int64_t first = 0; first < layers;) {
    const RecomputedBlock next = recomputed_block(pass.recompute, first, layers);
    Block block{first, next.end, next.is_repeated, x, {}};
    const bool is_output = next.end == layers && !contents_.last;
    const Array y = is_output ? output : pass.kept.take(count, type_);
    if (block.is_repeated) {
      const ArenaScope scope(pass.transient);
      Pass once = passing(pass);
      forward_block(once, block, y);
    } else {
      block.steps = forward_block(pass, block, y);
    }
    saved.blocks.push_back(std::move(block));
    x = y;
    first = next.end;
  }
  saved.output = x;
  if (contents_.last) {
    pass.begin_part(PassWatcher::kHead);
    saved.head = head_.forward(pass, batch, x);
  } else if (layers_.empty()) {
    pass.kernels.run(kernels::Copy{.count = count, .x = x, .y = output});
  }
  return saved;
}

void ModelChunk::backward(Pass& pass, const MicroBatch& batch, const Saved& saved, Array d) const {
  if (contents_.last) head_.backward(pass, batch, saved.head, saved.output, d);
  pass.end_part(PassWatcher::kHead);
  for (size_t i = saved.blocks.size(); i-- > 0;) {
    const Block& block = saved.blocks[i];
    const ArenaScope scope(pass.transient), scratch(pass.scratch);
    std::vector<Block::Step> again;
    if (block.is_repeated) {
      Pass pass_again = repeating(pass);
      again = forward_block(pass_again, block, pass.scratch.take(pass.own_rows() * hidden_, type_));
    }
    const std::vector<Block::Step>& steps = block.is_repeated ? again : block.steps;
    for (size_t step = steps.size(); step-- > 0;) {
      const auto layer = static_cast<size_t>(block.first) + step;
      layers_[layer].backward(pass, steps[step].saved, steps[step].input, d);
      pass.end_part(contents_.first_layer + block.first + static_cast<int64_t>(step));
    }
  }
  if (contents_.first) embedding_.backward(pass, {batch.tokens, batch.positions}, d);
  pass.end_part(PassWatcher::kRest);
}

}  // namespace ferry
