#include <algorithm>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

template <typename X>
struct Square {
  const X* x;
  template <int W>
  __device__ double at(int64_t i) const {
    const auto values = load<W>(x + i);
    double sum = 0;
#pragma unroll
    for (int j = 0; j < W; ++j) sum += static_cast<double>(values.v[j]) * values.v[j];
    return sum;
  }
};

struct Weighted {
  const float *x, *weight;
  __device__ double operator()(int64_t i) const {
    return weight ? static_cast<double>(x[i]) * static_cast<double>(weight[i]) : x[i];
  }
};

template <typename X>
struct RowElements {
  const X* x;
  int64_t width;
  template <int W>
  __device__ Pack<W> at(int64_t row, int64_t column) const {
    return load<W>(x + row * width + column);
  }
};

}  // namespace

void run(Device& device, const SumOfSquares& x) {
  with_type(x.x.type, [&]<typename X>(X*) {
    with_pack(is_packed({x.x.data}, {}), [&](auto pack) {
      add_sum_of_packs<decltype(pack)::value>(device, x.count, 1, x.sum,
                                              Square<X>{elements<X>(x.x)});
    });
  });
}

void run(Device& device, const WeightedSum& x) {
  add_sum(device, x.count, 1, x.sum, Weighted{x.x, x.weight});
}

void run(Device& device, const SumRows& x) {
  with_type(x.x.type, [&]<typename X>(X*) {
    add_columns(device, x.rows, x.width, is_packed({x.x.data}, {x.width}), x.sum,
                RowElements<X>{elements<X>(x.x), x.width});
  });
}

}  // namespace ferry::kernels::cuda
