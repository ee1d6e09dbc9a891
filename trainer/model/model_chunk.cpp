#include "trainer/model/model_chunk.h"

#include <fmt/format.h>

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

ModelChunk::ModelChunk(const ParameterSet& parameters, const Architecture& a,
                       const StageContents& contents, const ModelOptions& options,
                       kernels::Kernels& kernels)
    : contents_(contents), type_(options.type), hidden_(a.hidden) {
  if (contents.first) embedding_ = Embedding(parameters, a, options.tensor_ranks);
  for (int64_t i = 0; i < contents.layers; ++i) {
    const int64_t layer = contents.first_layer + i;
    layers_.emplace_back(parameters, fmt::format("decoder.layers.{}", layer), a, layer, options,
                         kernels);
  }
  if (contents.last) head_ = Head(parameters, a, options.tensor_ranks);
}

ModelChunk::Saved ModelChunk::forward(Pass& pass, const MicroBatch& batch, ConstArray input,
                                      Array output) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  // The inputs of all layers but the first are what the ones before gave; they are only read.
  Array x(const_cast<void*>(input.data), type_);
  if (contents_.first) {
    x = pass.kept.take(count, type_);
    embedding_.forward(pass, batch, x);
  }
  saved.inputs.push_back(x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool is_output = i + 1 == layers_.size() && !contents_.last;
    const Array y = is_output ? output : pass.kept.take(count, type_);
    saved.layers.push_back(layers_[i].forward(pass, x, y));
    x = y;
    saved.inputs.push_back(x);
  }
  if (contents_.last) {
    saved.head = head_.forward(pass, batch, x);
  } else if (layers_.empty()) {
    pass.kernels.run(kernels::Copy{.count = count, .x = x, .y = output});
  }
  return saved;
}

void ModelChunk::backward(Pass& pass, const MicroBatch& batch, const Saved& saved, Array d) const {
  if (contents_.last) head_.backward(pass, saved.head, saved.inputs.back(), d);
  for (size_t i = layers_.size(); i-- > 0;) {
    layers_[i].backward(pass, saved.layers[i], saved.inputs[i], d);
  }
  if (contents_.first) embedding_.backward(pass, batch, d);
}

}  // namespace ferry
