#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

// The library prepares code for each shape, and groups have any number of rows. So that there are
// few shapes, a group's rows are taken in whole multiples of kRows, and the rest with zeros behind.
namespace {

constexpr int64_t kRows = 64, kSmallRows = 16;

/// The rest's rows with zeros behind them, in `to`.
ConstArray with_zeros(const ConstArray& from, int64_t rows, int64_t padded_rows, int64_t width,
                      std::byte* to) {
  const auto bytes = static_cast<size_t>(rows * width * size_bytes(from.type));
  const auto padded_bytes = static_cast<size_t>(padded_rows * width * size_bytes(from.type));
  std::memcpy(to, from.data, bytes);
  std::memset(to + bytes, 0, padded_bytes - bytes);
  return {to, from.type};
}

int64_t padded(int64_t rows) { return (rows + kSmallRows - 1) / kSmallRows * kSmallRows; }

}  // namespace

void CpuKernels::run(const GroupedMatmul& x) {
  for (size_t group = 0; group < x.b.size(); ++group) {
    const int64_t begin = x.offsets[group], rows = x.offsets[group + 1] - begin;
    const int64_t whole = rows / kRows * kRows, rest = rows - whole;
    Product p{.m = whole,
              .n = x.n,
              .k = x.k,
              .a = x.a.from(begin * x.k),
              .b = x.b[group],
              .bias = x.bias.empty() ? ConstArray() : x.bias[group],
              .c = x.c.from(begin * x.n),
              .a_stride = x.k,
              .b_stride = x.b_transposed ? x.k : x.n,
              .c_stride = x.n,
              .a_transposed = false,
              .b_transposed = x.b_transposed,
              .accumulate = false};
    run(p);
    if (rest == 0) continue;
    const auto a_bytes = static_cast<size_t>(kRows * x.k * size_bytes(x.a.type));
    std::byte* memory =
        rest_.take(a_bytes + static_cast<size_t>(kRows * x.n * size_bytes(x.c.type)));
    const auto c = x.c.from((begin + whole) * x.n);
    p.m = padded(rest);
    p.a = with_zeros(x.a.from((begin + whole) * x.k), rest, p.m, x.k, memory);
    p.c = {memory + a_bytes, x.c.type};
    run(p);
    std::memcpy(c.data, p.c.data, static_cast<size_t>(rest * x.n * size_bytes(c.type)));
  }
}

void CpuKernels::run(const GroupedMatmulGradient& x) {
  for (size_t group = 0; group < x.c.size(); ++group) {
    const int64_t begin = x.offsets[group], rows = x.offsets[group + 1] - begin;
    const int64_t whole = rows / kRows * kRows, rest = rows - whole;
    Product p{.m = x.m,
              .n = x.n,
              .k = whole,
              .a = x.a.from(begin * x.m),
              .b = x.b.from(begin * x.n),
              .bias = {},
              .c = x.c[group],
              .a_stride = x.m,
              .b_stride = x.n,
              .c_stride = x.n,
              .a_transposed = true,
              .b_transposed = false,
              .accumulate = x.accumulate};
    run(p);
    if (rest == 0) continue;
    p.accumulate = true;
    const auto a_bytes = static_cast<size_t>(kRows * x.m * size_bytes(x.a.type));
    std::byte* memory =
        rest_.take(a_bytes + static_cast<size_t>(kRows * x.n * size_bytes(x.b.type)));
    p.k = padded(rest);
    p.a = with_zeros(x.a.from((begin + whole) * x.m), rest, p.k, x.m, memory);
    p.b = with_zeros(x.b.from((begin + whole) * x.n), rest, p.k, x.n, memory + a_bytes);
    run(p);
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
