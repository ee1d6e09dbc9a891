#include "kernels/float8.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

using Bytes = uint8_t __attribute__((vector_size(16)));

/// An 8-bit format's constants relative to fp32.
struct Shape {
  int shift;            // additional fraction bits of fp32
  uint32_t rebias;      // difference of exponent biases
  float least_normal;   // smaller numbers are subnormal
  float whole;          // its last bit has the weight of a subnormal number's
  float unit;           // ratio of values with the same exponent bits
  uint32_t not_finite;  // magnitudes from here on
};

constexpr Shape shape_of(Float8 format) {
  if (format == Float8::e4m3) return {20, 120, 0x1p-6F, 0x1p14F, 0x1p120F, 0x7F};
  return {21, 112, 0x1p-14F, 0x1p7F, 0x1p112F, 0x7C};
}

FERRY_INLINE Float magnitude_of(Float value) {
  return bits_of<Float>(bits_of<UInt>(value) & 0x7FFFFFFF);
}

/// The codes of value · factor.
FERRY_INLINE UInt rounded(Float value, float factor, const Shape& shape, float most) {
  const UInt sign = bits_of<UInt>(value) >> 24 & 0x80;
  const Float wide = magnitude_of(value);
  Float x = wide * factor;
  x = x > most ? all(most) : x;
  const UInt bits = bits_of<UInt>(x);
  const UInt half = UInt{} + ((1U << (shape.shift - 1)) - 1);
  const UInt normal = ((bits + half + (bits >> shape.shift & 1)) >> shape.shift) -
                      (shape.rebias << (23 - shape.shift));
  const UInt subnormal = bits_of<UInt>(x + shape.whole) - bits_of<uint32_t>(shape.whole);
  const UInt code = (x < shape.least_normal ? subnormal : normal) | sign;
  // NaN and infinity are not below it.
  return wide <= 0x1.fffffep127F ? code : UInt{} + 0x7F;
}

FERRY_INLINE void store_codes(uint8_t* to, UInt codes) {
  const Bytes bytes = __builtin_convertvector(codes, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}

/// The values of codes, without the scale.
FERRY_INLINE Float values(const uint8_t* from, const Shape& shape) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  const UInt codes = __builtin_convertvector(bytes, UInt);
  const UInt magnitude = codes & 0x7F;
  const Float number = bits_of<Float>(magnitude << shape.shift) * shape.unit;
  const UInt bits = magnitude >= shape.not_finite ? UInt{} + 0x7FC00000 : bits_of<UInt>(number);
  return bits_of<Float>(bits | (codes & 0x80) << 24);
}

/// The values of rows that are `stride` codes apart.
void widen(const Team& team, int64_t rows, int64_t width, int64_t stride, const Float8Matrix& from,
           float* to) {
  const Shape shape = shape_of(from.format);
  team.each(rows, width, [&](int64_t row) {
    vectors(0, width, [&](int64_t i, auto n) {
      uint8_t part[kLanes] = {};
      const int64_t rest = width - i < kLanes ? width - i : kLanes;
      std::memcpy(part, from.data + row * stride + i, static_cast<size_t>(rest));
      store(to + row * width + i, values(part, shape), n);
    });
  });
}

Float8Scale scale_of(float factor) {
  constexpr float kMost = 0x1.fffffep127F;
  const float finite = factor < kMost ? factor : kMost;
  return {1 / finite, finite};
}

bool is_positive(float number) { return number > 0 && number <= 0x1.fffffep127F; }

}  // namespace

void CpuKernels::run(const AbsoluteMaximum& x) {
  constexpr int64_t kBlock = 1 << 16;
  const int64_t blocks = (x.count + kBlock - 1) / kBlock;
  float* parts = workspace_.floats(blocks);
  with_type(x.x.type, [&]<typename X>(X*) {
    const auto* from = static_cast<const X*>(x.x.data);
    team_.each(blocks, kBlock, [&](int64_t block) {
      Float most{};
      const int64_t end = (block + 1) * kBlock < x.count ? (block + 1) * kBlock : x.count;
      vectors(block * kBlock, end, [&](int64_t i, auto n) {
        const Float value = magnitude_of(load(from + i, n));
        most = value > most ? value : most;
      });
      parts[block] = greatest_of(most);
    });
  });
  float most = 0;
  for (int64_t block = 0; block < blocks; ++block) most = parts[block] > most ? parts[block] : most;
  *x.maximum = most;
}

void CpuKernels::run(const CurrentScale& x) {
  *x.scale = is_positive(*x.maximum) ? scale_of(greatest(x.format) / *x.maximum) : Float8Scale{};
}

void CpuKernels::run(const DelayedScales& x) {
  for (int64_t i = 0; i < x.count; ++i) {
    if (x.maximum[i] == 0) continue;
    float number = x.maximum[i];
    for (int64_t age = x.length - 1; age > 0; --age) {
      const float older = x.history[(age - 1) * x.count + i];
      x.history[age * x.count + i] = older;
      if (!x.takes_newest && older > number) number = older;
    }
    x.history[i] = x.maximum[i];
    x.maximum[i] = 0;
    if (is_positive(number)) x.scale[i] = scale_of(greatest(x.format) * x.share / number);
  }
}

void CpuKernels::run(const Quantize& x) {
  if (x.to.maximum != nullptr) {
    float most = 0;
    run(AbsoluteMaximum{.count = x.rows * x.width, .x = x.x, .maximum = &most});
    if (most > *x.to.maximum) *x.to.maximum = most;
  }
  const Shape shape = shape_of(x.to.format);
  const float factor = x.to.scale->factor, most = greatest(x.to.format);
  with_type(x.x.type, [&]<typename X>(X*) {
    const auto* from = static_cast<const X*>(x.x.data);
    team_.parts(x.rows, 64, x.width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        vectors(0, x.width, [&](int64_t i, auto n) {
          uint8_t codes[kLanes];
          store_codes(codes, rounded(load(from + row * x.width + i, n), factor, shape, most));
          const int64_t count = x.width - i < kLanes ? x.width - i : kLanes;
          if (x.to.by_row != nullptr)
            std::memcpy(x.to.by_row + row * x.width + i, codes, static_cast<size_t>(count));
          if (x.to.by_column == nullptr) return;
          for (int64_t j = 0; j < count; ++j) x.to.by_column[(i + j) * x.rows + row] = codes[j];
        });
      }
    });
  });
}

void CpuKernels::run(const QuantizeEach& x) {
  const int64_t size = x.rows * x.width;
  Float8Output to = x.to;
  for (size_t i = 0; i < x.x.size(); ++i) {
    if (x.to.scale == nullptr) {
      float most = 0;
      run(AbsoluteMaximum{.count = size, .x = x.x[i], .maximum = &most});
      run(CurrentScale{.format = to.format, .maximum = &most, .scale = x.scales + i});
      to.scale = x.scales + i;
    }
    run(Quantize{.rows = x.rows, .width = x.width, .x = x.x[i], .to = to});
    if (to.by_row != nullptr) to.by_row += size;
    if (to.by_column != nullptr) to.by_column += size;
  }
}

// The values of codes and their products are exact in fp32.
void CpuKernels::multiply(const Float8Matmul& x, int64_t stride) {
  if (x.m == 0 || x.n == 0) return;
  const int64_t a_count = x.m * x.k, b_count = x.n * x.k;
  auto* const memory = reinterpret_cast<float*>(
      rest_.take(static_cast<size_t>(a_count + b_count + x.m * x.n) * sizeof(float)));
  float *const a = memory, *const b = a + a_count, *const sum = b + b_count;
  widen(team_, x.m, x.k, stride, x.a, a);
  widen(team_, x.n, x.k, stride, x.b, b);
  run(Product{.m = x.m,
              .n = x.n,
              .k = x.k,
              .a = Array(a),
              .b = Array(b),
              .bias = {},
              .c = Array(sum),
              .a_stride = x.k,
              .b_stride = x.k,
              .c_stride = x.n,
              .b_transposed = true});
  const float scale = x.a.scale->inverse * x.b.scale->inverse;
  with_type(x.c.type, [&]<typename C>(C*) {
    team_.each(x.m, x.n, [&](int64_t row) {
      auto* c = static_cast<C*>(x.c.data) + row * x.n;
      vectors(0, x.n, [&](int64_t i, auto n) {
        Float value = load(sum + row * x.n + i, n) * scale;
        if (x.bias) value += load(x.bias, i, n);
        store(c + i, x.accumulate ? load(c + i, n) + value : value, n);
      });
    });
  });
}

void CpuKernels::run(const Float8Matmul& x) { multiply(x, x.k); }

void CpuKernels::run(const GroupedFloat8Matmul& x) {
  for (int64_t group = 0; group < x.groups; ++group) {
    const int64_t first = x.offsets[group];
    run(Float8Matmul{
        .m = x.offsets[group + 1] - first,
        .n = x.n,
        .k = x.k,
        .a = {x.a.data + first * x.k, x.a.format, x.a.scale},
        .b = {x.b + group * x.n * x.k, Float8::e4m3, x.scales + (x.shares_scale ? 0 : group)},
        .c = x.c.from(first * x.n),
        .bias = {}});
  }
}

void CpuKernels::run(const GroupedTranspose& x) {
  const int64_t columns = grouped_columns(x.groups, x.rows);
  team_.each(x.width, x.rows, [&](int64_t place) {
    for (int64_t group = 0; group < x.groups; ++group) {
      const int64_t begin = x.offsets[group], count = x.offsets[group + 1] - begin;
      uint8_t* const y = x.y + place * columns + grouped_column(group, begin);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = x.index == nullptr ? begin + i : x.index[begin + i] / x.divisor;
        y[i] = x.x[row * x.width + place];
      }
      const int64_t rest = (kFloat8Columns - count % kFloat8Columns) % kFloat8Columns;
      std::memset(y + count, 0, static_cast<size_t>(rest));
    }
  });
}

void CpuKernels::run(const GroupedFloat8Gradient& x) {
  const auto groups = static_cast<int64_t>(x.c.size());
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = x.offsets[group], column = grouped_column(group, begin);
    multiply({.m = x.m,
              .n = x.n,
              .k = x.offsets[group + 1] - begin,
              .a = {x.a.data + column, x.a.format, x.a.scale},
              .b = {x.b.data + column, x.b.format, x.b.scale},
              .c = x.c[static_cast<size_t>(group)],
              .accumulate = x.accumulate,
              .bias = {}},
             grouped_columns(groups, x.rows));
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
