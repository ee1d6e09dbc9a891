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

}  // namespace ferry
