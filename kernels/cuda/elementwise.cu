// Elementwise operations, and operations on strided rows.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

template <typename X, typename Y>
struct CopyElements {
  const X* x;
  Y* y;
  template <int W>
  __device__ void at(int64_t i) const {
    store<W>(y + i, load<W>(x + i));
  }
};

template <typename X, typename Y>
struct CopyRowElements {
  const X* x;
  Y* y;
  int64_t width, x_stride, y_stride;
  bool accumulate;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t row = i / width, column = i % width;
    auto value = load<W>(x + row * x_stride + column);
    Y* const to = y + row * y_stride + column;
    if (accumulate) {
      const auto before = load<W>(to);
#pragma unroll
      for (int j = 0; j < W; ++j) value.v[j] += before.v[j];
    }
    store<W>(to, value);
  }
};

template <typename A, typename B>
struct AddElements {
  const A* a;
  const B* b;
  A* y;
  template <int W>
  __device__ void at(int64_t i) const {
    auto value = load<W>(a + i);
    const auto other = load<W>(b + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] += other.v[j];
    store<W>(y + i, value);
  }
};

template <typename X, typename Y>
struct ScaleElements {
  const X* x;
  Y* y;
  float factor;
  const float* factor_on_device;
  template <int W>
  __device__ void at(int64_t i) const {
    const float by = factor_on_device ? factor * *factor_on_device : factor;
    auto value = load<W>(x + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] *= by;
    store<W>(y + i, value);
  }
};

struct CompareWords {
  const uint16_t *a, *b;
  int32_t* differs;
  __device__ void operator()(int64_t i) const {
    if (a[i] != b[i]) *differs = 1;
  }
};

template <typename Y>
struct SetElements {
  Y* y;
  float value;
  template <int W>
  __device__ void at(int64_t i) const {
    Pack<W> all;
#pragma unroll
    for (int j = 0; j < W; ++j) all.v[j] = value;
    store<W>(y + i, all);
  }
};

}  // namespace

void run(Device& device, const Copy& x) {
  if (x.count == 0) return;
  if (x.x.type == x.y.type) {
    const auto bytes = static_cast<size_t>(x.count * size_bytes(x.y.type));
    check(cudaMemcpyAsync(x.y.data, x.x.data, bytes, cudaMemcpyDefault, device.stream()),
          "copying");
    return;
  }
  with_type(x.x.type, [&]<typename X>(X*) {
    with_type(x.y.type, [&]<typename Y>(Y*) {
      each_pack(device, x.count, is_packed({x.x.data, x.y.data}, {}),
                CopyElements<X, Y>{elements<X>(x.x), elements<Y>(x.y)}, "copy");
    });
  });
}

void run(Device& device, const CopyRows& x) {
  const bool packed = is_packed({x.x.data, x.y.data}, {x.width, x.x_stride, x.y_stride});
  with_types(x.x.type, x.y.type, [&]<typename X, typename Y>(X*, Y*) {
    each_pack(device, x.rows * x.width, packed,
              CopyRowElements<X, Y>{elements<X>(x.x), elements<Y>(x.y), x.width, x.x_stride,
                                    x.y_stride, x.accumulate},
              "copy of rows");
  });
}

void run(Device& device, const Clear& x) {
  if (x.count == 0) return;
  const auto bytes = static_cast<size_t>(x.count * size_bytes(x.y.type));
  check(cudaMemsetAsync(x.y.data, 0, bytes, device.stream()), "clearing");
}

void run(Device& device, const Add& x) {
  const bool packed = is_packed({x.a.data, x.b.data, x.y.data}, {});
  with_types(x.a.type, x.b.type, [&]<typename A, typename B>(A*, B*) {
    each_pack(device, x.count, packed,
              AddElements<A, B>{elements<A>(x.a), elements<B>(x.b), elements<A>(x.y)}, "sum");
  });
}

void run(Device& device, const Scale& x) {
  with_types(x.x.type, x.y.type, [&]<typename X, typename Y>(X*, Y*) {
    each_pack(device, x.count, is_packed({x.x.data, x.y.data}, {}),
              ScaleElements<X, Y>{elements<X>(x.x), elements<Y>(x.y), x.factor, x.factor_on_device},
              "scale");
  });
}

void run(Device& device, const FillConstant& x) {
  with_type(x.y.type, [&]<typename Y>(Y*) {
    each_pack(device, x.count, is_packed({x.y.data}, {}), SetElements<Y>{elements<Y>(x.y), x.value},
              "fill");
  });
}

bool same_bytes(Device& device, const void* a, const void* b, int64_t bytes) {
  auto* const differs = static_cast<int32_t*>(device.workspace(sizeof(int32_t)));
  check(cudaMemsetAsync(differs, 0, sizeof *differs, device.stream()), "clearing");
  each(device, bytes / 2,
       CompareWords{static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), differs},
       "comparison");
  int32_t result = 0;
  check(cudaMemcpyAsync(&result, differs, sizeof result, cudaMemcpyDefault, device.stream()),
        "comparing");
  check(cudaStreamSynchronize(device.stream()), "comparing");
  return result == 0;
}

}  // namespace ferry::kernels::cuda
