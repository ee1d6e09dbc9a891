#include "kernels/cuda/mixture/grouped/grouped_products.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/mixture/grouped/grouped.h"
#include "kernels/cuda/products/products.h"

namespace ferry::kernels::cuda {

namespace {

bool takes_matrix(const ConstArray& x, int64_t rows, int64_t columns) {
  return takes_tensor(x, columns, std::array<Dimension, 1>{{{rows, columns}}});
}

bool is_for_hopper(const Device& device, const GroupedMatmul& x) {
  const auto takes_weight = [&](const ConstArray& b) {
    return b.type == x.a.type &&
           takes_matrix(b, x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n);
  };
  return device.architecture() == 90 && x.bias.empty() && x.c.type == x.a.type &&
         takes_matrix(x.a, x.rows, x.k) && takes_matrix(x.c, x.rows, x.n) &&
         std::all_of(x.b.begin(), x.b.end(), takes_weight);
}

bool is_for_hopper(const Device& device, const GroupedMatmulGradient& x) {
  const Type type = x.c.front().type;
  const auto takes_gradient = [&](const Array& c) {
    return c.type == type && takes_matrix({c.data, x.a.type}, x.m, x.n);
  };
  return device.architecture() == 90 && x.a.type == x.b.type &&
         (type == x.a.type || type == Type::f32) && takes_matrix(x.a, x.rows, x.m) &&
         takes_matrix(x.b, x.rows, x.n) && std::all_of(x.c.begin(), x.c.end(), takes_gradient);
}

}  // namespace

void GroupedProducts::run(const GroupedMatmul& x) {
  if (x.rows == 0 || x.n == 0) return;
  if (!is_for_hopper(device_, x)) return run_in_tiles(device_, x);
  const auto weights = x.b_transposed ? maps_.of(x.b, x.n, x.k, grouped::kWeightBoxRows)
                                      : maps_.of(x.b, x.k, x.n, grouped::kWeightAcrossBoxRows);
  grouped::hopper_rows(device_, launches_, x, weights);
}

void GroupedProducts::run(const GroupedMatmulGradient& x) {
  if ((x.rows == 0 && x.accumulate) || x.n == 0 || x.m == 0 || x.c.empty()) return;
  if (!is_for_hopper(device_, x)) return run_in_tiles(device_, x);
  grouped::hopper_gradient(device_, launches_, x);
}

}  // namespace ferry::kernels::cuda
