// Stateless random numbers (kernels/random.h), dropout, and gates of rows.
#include "kernels/cuda/activation_functions.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/random.h"

namespace ferry::kernels::cuda {

namespace {

struct Normal {
  uint64_t key, first;
  float mean, deviation;
  Array y;
  __device__ void operator()(int64_t i) const {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const auto words = philox(key, at / 4, 0);
    const uint32_t even = words[at / 2 % 2 * 2], odd = words[at / 2 % 2 * 2 + 1];
    // (0, 1] for the logarithm, [0, 1) for the angle.
    const float radius = static_cast<float>((even >> 8) + 1) * 0x1p-24F;
    const float turn = static_cast<float>(odd >> 8) * 0x1p-24F;
    float sine, cosine;
    sincospif(2 * turn, &sine, &cosine);
    const float length = sqrtf(-2.0F * logf(radius));
    set_element(y, i, mean + deviation * (length * (at % 2 == 0 ? cosine : sine)));
  }
};

template <typename T, typename Y>
struct Drop {
  Dropout x;
  float scale;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t row = i / x.width;
    const auto first =
        static_cast<uint64_t>(x.row_ids[row] * x.total_width + x.first_column + i % x.width);
    auto value = load<W>(static_cast<const T*>(x.x.data) + i);
    Pack<W> residual{};
    if (x.residual) residual = load<W>(static_cast<const Y*>(x.residual.data) + i);
    const auto probability = static_cast<float>(x.probability);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const bool kept = uniform_at(x.key, first + static_cast<uint64_t>(j)) >= probability;
      value.v[j] = value.v[j] * (kept ? scale : 0.0F) + residual.v[j];
    }
    store<W>(static_cast<Y*>(x.y.data) + i, value);
  }
};

template <typename T, typename Y>
struct Gate {
  const float* logit;
  int64_t width;
  const T* x;
  Y* y;
  template <int W>
  __device__ void at(int64_t i) const {
    const float gate = sigmoid(logit[i / width]);
    auto value = load<W>(x + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] *= gate;
    store<W>(y + i, value);
  }
};

template <int W, typename T, typename D>
__global__ void gate_backward(GateRowsBackward x) {
  __shared__ float scratch[32];
  const int64_t row = blockIdx.x, start = row * x.width;
  const float gate = sigmoid(x.logit[row]);
  float product = 0;
  for (int64_t i = threadIdx.x * W; i < x.width; i += blockDim.x * W) {
    auto dy = load<W>(static_cast<const D*>(x.dy.data) + start + i);
    const auto value = load<W>(static_cast<const T*>(x.x.data) + start + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      product += dy.v[j] * value.v[j];
      dy.v[j] *= gate;
    }
    store<W>(static_cast<D*>(x.dx.data) + start + i, dy);
  }
  product = block_sum(product, scratch);
  if (threadIdx.x == 0) x.dlogit[row] = product * gate * (1 - gate);
}

}  // namespace

void run(Device& device, const FillNormal& x) {
  each(device, x.count,
       Normal{x.key, x.first, static_cast<float>(x.mean), static_cast<float>(x.deviation), x.y},
       "random numbers");
}

void run(Device& device, const Dropout& x) {
  const auto scale = static_cast<float>(1 / (1 - x.probability));
  const bool packed = is_packed({x.x.data, x.residual.data, x.y.data}, {x.width});
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    each_pack(device, x.rows * x.width, packed, Drop<T, Y>{x, scale}, "dropout");
  });
}

void run(Device& device, const GateRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    each_pack(device, x.rows * x.width, is_packed({x.x.data, x.y.data}, {x.width}),
              Gate<T, Y>{x.logit, x.width, elements<T>(x.x), elements<Y>(x.y)}, "gate");
  });
}

void run(Device& device, const GateRowsBackward& x) {
  if (x.rows == 0) return;
  with_types(x.x.type, x.dy.type, [&]<typename T, typename D>(T*, D*) {
    with_pack(is_packed({x.x.data, x.dy.data, x.dx.data}, {x.width}), [&](auto pack) {
      gate_backward<decltype(pack)::value, T, D>
          <<<static_cast<unsigned>(x.rows), kThreads, 0, device.stream()>>>(x);
    });
  });
  check_launch("gate's gradient");
}

}  // namespace ferry::kernels::cuda
