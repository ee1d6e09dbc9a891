#include "trainer/model/residual.h"

namespace ferry {

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

void add_residual(Pass& pass, int64_t width, const OpenSum& sum, Array y) {
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
