#include "trainer/model/head.h"

namespace ferry {

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
