#include "trainer/model/norm.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

NormLayer::NormLayer(const ParameterSet& parameters, const std::string& name, int64_t width,
                     const Architecture& architecture)
    : weight_(parameters.get(name + ".weight", width)),
      bias_(parameters.find(name + ".bias", width)),
      width_(width),
      epsilon_(architecture.norm_eps),
      rms_(architecture.norm == Norm::rms) {}

NormLayer::Saved NormLayer::forward(Pass& pass, const NormRows& rows, ConstArray x, Array y) const {
  return forward(pass, rows, x, {}, {}, y);
}

NormLayer::Saved NormLayer::forward(Pass& pass, const NormRows& rows, ConstArray x,
                                    ConstArray residual, Array sum, Array y) const {
  Saved saved;
  const int64_t count = rows.rows * rows.heads;
  if (!rms_) saved.mean = pass.kept.take<float>(count);
  saved.inverse = pass.kept.take<float>(count);
  pass.kernels.run(kernels::NormForward{.rows = rows.rows,
                                        .width = width_,
                                        .heads = rows.heads,
                                        .row_stride = rows.row_stride,
                                        .head_stride = rows.head_stride,
                                        .epsilon = epsilon_,
                                        .rms = rms_,
                                        .x = x,
                                        .residual = residual,
                                        .sum = sum,
                                        .weight = weight_.value,
                                        .bias = bias_.value,
                                        .y = y,
                                        .mean = saved.mean,
                                        .inverse = saved.inverse});
  return saved;
}

void NormLayer::backward(Pass& pass, const NormRows& rows, const Saved& saved, ConstArray x,
                         ConstArray dy, Array dx, bool accumulate) const {
  pass.kernels.run(kernels::NormBackward{.rows = rows.rows,
                                         .width = width_,
                                         .heads = rows.heads,
                                         .row_stride = rows.row_stride,
                                         .head_stride = rows.head_stride,
                                         .rms = rms_,
                                         .accumulate = accumulate,
                                         .x = x,
                                         .weight = weight_.value,
                                         .mean = saved.mean,
                                         .inverse = saved.inverse,
                                         .dy = dy,
                                         .dx = dx,
                                         .dweight = weight_.take_gradient(),
                                         .dbias = bias_.take_gradient()});
}

using kernels::Array;
using kernels::ConstArray;

namespace {

void drop_out(Pass& pass, uint64_t place, int64_t width, ConstArray residual, ConstArray x,
              Array y) {
  pass.kernels.run(kernels::Dropout{.rows = pass.own_rows(),
                                    .width = width,
                                    .probability = pass.hidden_dropout,
                                    .key = kernels::mix_key(pass.dropout_key, place),
                                    .row_ids = pass.row_ids,
                                    .total_width = width,
                                    .x = x,
                                    .residual = residual,
                                    .y = y});
}

}  // namespace

void add_residual(Pass& pass, int64_t width, const PendingResidual& sum, Array y) {
  const auto& [x, change, place] = sum;
  const int64_t count = pass.own_rows() * width;
  if (pass.hidden_dropout > 0) {
    drop_out(pass, place, width, x, change, y);
  } else if (x) {
    pass.kernels.run(kernels::Add{.count = count, .a = x, .b = change, .y = y});
  } else if (change.data != y.data) {
    pass.kernels.run(kernels::Copy{.count = count, .x = change, .y = y});
  }
}

ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width, ConstArray dy) {
  if (pass.hidden_dropout == 0) return dy;
  const Array dropped = pass.scratch.take(pass.own_rows() * width, dy.type);
  drop_out(pass, place, width, {}, dy, dropped);
  return dropped;
}

}  // namespace ferry
