#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

constexpr int64_t kDeep = 1024;  // steps per call of the library

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// The offset of element (row, column) of a matrix that may be transposed.
int64_t position(int64_t row, int64_t column, int64_t stride, bool transposed) {
  return transposed ? column * stride + row : row * stride + column;
}

/// Copies and converts rows of `width` elements.
void convert_rows(const Team& team, int64_t rows, int64_t width, const ConstArray& from,
                  int64_t from_stride, const Array& to, int64_t to_stride) {
  with_types(from.type, to.type, [&]<typename T, typename Y>(T*, Y*) {
    team.each(rows, width, [&](int64_t row) {
      const auto* x = static_cast<const T*>(from.data) + row * from_stride;
      auto* y = static_cast<Y*>(to.data) + row * to_stride;
      vectors(0, width, [&](int64_t i, auto n) { store(y + i, load(x + i, n), n); });
    });
  });
}

/// c = sum or c += sum, plus the bias.
void finish(const Team& team, const Product& p, const float* sum, int64_t sum_stride) {
  with_type(p.c.type, [&]<typename C>(C*) {
    team.each(p.m, p.n, [&](int64_t row) {
      auto* c = static_cast<C*>(p.c.data) + row * p.c_stride;
      vectors(0, p.n, [&](int64_t i, auto n) {
        Float value = load(sum + row * sum_stride + i, n);
        if (p.bias) value += load(p.bias, i, n);
        store(c + i, p.accumulate ? load(c + i, n) + value : value, n);
      });
    });
  });
}

/// The library is half as fast if the rows of the right factor are whole pages apart: they collide
/// in the L1 cache.
bool rows_collide(const Product& p) {
  return p.b.type == Type::f32 && !p.b_transposed &&
         p.b_stride * size_bytes(p.b.type) % 4096 == 0 && p.k > 1;
}

/// Splits `count` rows or columns into about equal parts of at most `most`, multiples of 64 except
/// the last.
int64_t part_size(int64_t count, int64_t most) {
  const int64_t parts = (count + most - 1) / most;
  return (((count + parts - 1) / parts) + 63) / 64 * 64;
}

/// The part of a product that starts at row `row` and column `column`.
Product block_of(Product p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  p.a = p.a.from(position(row, 0, p.a_stride, p.a_transposed));
  p.b = p.b.from(position(0, column, p.b_stride, p.b_transposed));
  p.c = p.c.from(row * p.c_stride + column);
  if (p.bias) p.bias = p.bias.from(column);
  p.m = rows;
  p.n = columns;
  return p;
}

/// A part of a product: `steps` steps from `step` on, of all rows and columns.
Product steps_of(Product p, int64_t step, int64_t steps) {
  p.a = p.a.from(position(0, step, p.a_stride, p.a_transposed));
  p.b = p.b.from(position(step, 0, p.b_stride, p.b_transposed));
  p.k = steps;
  return p;
}

}  // namespace

// The library is faster with 16-bit factors in parts that fit the L2 cache: for vocabularies, and
// if it transposes the left factor.
bool CpuKernels::multiply(const Product& p) {
  constexpr int64_t kMost = 4096, kSmall = 1024;
  if (p.a.type == Type::f32) return multiply_deep(p);
  const bool turns = p.a_transposed && p.k > kSmall / 2;
  const int64_t rows = part_size(p.m, turns ? kSmall : kMost);
  const int64_t columns = part_size(p.n, p.n > 4 * kMost ? kSmall : kMost);
  for (int64_t column = 0; column < p.n; column += columns) {
    for (int64_t row = 0; row < p.m; row += rows) {
      const auto block =
          block_of(p, row, smaller(rows, p.m - row), column, smaller(columns, p.n - column));
      if (!multiply_deep(block)) return false;
    }
  }
  return true;
}

// Products with many steps are slow in the library, so they are split into kDeep steps at a time,
// with sums in fp32.
bool CpuKernels::multiply_deep(const Product& p) {
  if (p.k < 2 * kDeep) return multiply_spread(p);
  const bool needs_sums = p.c.type != Type::f32;
  Product part = p;
  if (needs_sums) {
    part.c = Array(workspace_.floats(p.m * p.n));
    part.c_stride = p.n;
    part.bias = {};
    part.accumulate = false;
  }
  for (int64_t step = 0; step < p.k; step += kDeep) {
    if (!multiply_spread(steps_of(part, step, smaller(kDeep, p.k - step)))) return false;
    part.accumulate = true;
    part.bias = {};
  }
  if (needs_sums) finish(team_, p, static_cast<const float*>(part.c.data), p.n);
  return true;
}

// Rows of the right factor that would collide in the cache are copied first.
bool CpuKernels::multiply_spread(Product p) {
  if (!rows_collide(p)) return products_.run(p);
  const int64_t stride = p.n + kLanes;
  const Array spread(reinterpret_cast<float*>(spread_.take(static_cast<size_t>(p.k * stride) * 4)));
  convert_rows(team_, p.k, p.n, p.b, p.b_stride, spread, stride);
  p.b = spread;
  p.b_stride = stride;
  return products_.run(p);
}

// For types without a fast product on this machine: converts blocks of the factors to fp32.
void CpuKernels::multiply_converted(const Product& p) {
  constexpr int64_t kBlock = 1024;
  float* memory = workspace_.floats(3 * kBlock * kBlock);
  const Array a(memory), b(memory + kBlock * kBlock);
  const Array c(memory + 2 * kBlock * kBlock);
  for (int64_t row = 0; row < p.m; row += kBlock) {
    for (int64_t column = 0; column < p.n; column += kBlock) {
      Product block = p;
      block.m = smaller(kBlock, p.m - row);
      block.n = smaller(kBlock, p.n - column);
      for (int64_t step = 0; step < p.k; step += kBlock) {
        const int64_t steps = smaller(kBlock, p.k - step);
        const auto convert = [&](const ConstArray& from, int64_t first, int64_t rows,
                                 int64_t columns, int64_t stride, bool transposed,
                                 const Array& to) {
          convert_rows(team_, transposed ? columns : rows, transposed ? rows : columns,
                       from.from(first), stride, to, kBlock);
        };
        convert(p.a, position(row, step, p.a_stride, p.a_transposed), block.m, steps, p.a_stride,
                p.a_transposed, a);
        convert(p.b, position(step, column, p.b_stride, p.b_transposed), steps, block.n, p.b_stride,
                p.b_transposed, b);
        products_.run({.m = block.m,
                       .n = block.n,
                       .k = steps,
                       .a = a,
                       .b = b,
                       .bias = {},
                       .c = c,
                       .a_stride = kBlock,
                       .b_stride = kBlock,
                       .c_stride = kBlock,
                       .a_transposed = p.a_transposed,
                       .b_transposed = p.b_transposed,
                       .accumulate = step > 0});
      }
      block.c = p.c.from(row * p.c_stride + column);
      if (p.bias) block.bias = p.bias.from(column);
      finish(team_, block, static_cast<const float*>(c.data), kBlock);
    }
  }
}

void CpuKernels::run(const Product& p) {
  if (p.m == 0 || p.n == 0 || (p.k == 0 && p.accumulate)) return;
  if (p.k == 0) {
    float* zeros = workspace_.floats(p.n);
    for (int64_t i = 0; i < p.n; ++i) zeros[i] = 0;
    return finish(team_, p, zeros, 0);
  }
  if (!multiply(p)) multiply_converted(p);
}

void CpuKernels::run(const Matmul& x) {
  run(Product{.m = x.m,
              .n = x.n,
              .k = x.k,
              .a = x.a,
              .b = x.b,
              .bias = x.bias,
              .c = x.c,
              .a_stride = x.a_transposed ? x.m : x.k,
              .b_stride = x.b_transposed ? x.k : x.n,
              .c_stride = x.n,
              .a_transposed = x.a_transposed,
              .b_transposed = x.b_transposed,
              .accumulate = x.accumulate});
  if (!x.activated) return;
  run(ActivationForward{
      .kind = x.activation, .rows = x.m, .width = x.n, .x = x.c, .y = x.activated});
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
