// How fast products of groups of rows are on a GPU, in bf16: of a mixture's experts, forward, their
// inputs' and their weights' gradients, compared with one product of the same total size by the
// library; and with 8-bit factors, compared with the same in bf16.
//
//   bench_grouped [tokens,hidden,ffn,experts,chosen ...]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/mixture/grouped/grouped.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/products/products.h"
#include "tests/gpu/bench/measuring.h"

namespace {

using namespace ferry::kernels;
using ferry::measuring::Numbers;
using ferry::measuring::seconds;

/// Offsets for tokens that choose experts uniformly at random.
std::vector<int64_t> offsets_of(int64_t tokens, int64_t experts, int64_t chosen) {
  std::mt19937 random(1);
  std::vector<int64_t> order(static_cast<size_t>(experts)), offsets(order.size() + 1);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t j = 0; j < static_cast<size_t>(chosen); ++j) {
      std::swap(order[j], order[j + random() % (order.size() - j)]);
      ++offsets[static_cast<size_t>(order[j]) + 1];
    }
  }
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  return offsets;
}

class Bench {
 public:
  Bench(cuda::Device& device, const std::vector<int64_t>& n)
      : device_(device), experts_(n[3]), rows_(n[0] * n[4]) {
    const auto offsets = offsets_of(n[0], n[3], n[4]);
    const size_t bytes = offsets.size() * sizeof(int64_t);
    offsets_ = device.allocate(bytes);
    scales_ = device.allocate(static_cast<size_t>(experts_) * sizeof(Float8Scale));
    cuda::check(cudaMemcpy(offsets_.get(), offsets.data(), bytes, cudaMemcpyHostToDevice), "copy");
  }

  /// Measures a linear layer from `in` to `out` numbers.
  void measure(const char* name, int64_t in, int64_t out) {
    const Numbers x(device_, rows_ * in), y(device_, rows_ * out);
    const Numbers weights(device_, experts_ * in * out);
    std::vector<ConstArray> weight;
    for (int64_t i = 0; i < experts_; ++i) {
      weight.push_back(ConstArray(weights).from(i * in * out));
    }
    const auto* const offsets = static_cast<const int64_t*>(offsets_.get());
    const auto grouped = [&](int64_t n, int64_t k, ConstArray a, Array c, bool transposed) {
      grouped_.run(GroupedMatmul{.n = n,
                                 .k = k,
                                 .rows = rows_,
                                 .offsets = offsets,
                                 .a = a,
                                 .b = weight,
                                 .c = c,
                                 .b_transposed = transposed});
    };
    const auto dense = [&](int64_t n, int64_t k, ConstArray a, Array c, bool transposed) {
      products_.run(Matmul{
          .m = rows_, .n = n, .k = k, .a = a, .b = weights, .c = c, .b_transposed = transposed});
    };
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in * out);
    print(
        name, "forward", flops, [&] { grouped(out, in, x, y, true); },
        [&] { dense(out, in, x, y, true); });
    print(
        name, "inputs' gradient", flops, [&] { grouped(in, out, y, x, false); },
        [&] { dense(in, out, y, x, false); });
    const auto codes = [&](int64_t n, int64_t k, Float8 format, ConstArray a, Array c) {
      grouped_.run(GroupedFloat8Matmul{.n = n,
                                       .k = k,
                                       .rows = rows_,
                                       .groups = experts_,
                                       .offsets = offsets,
                                       .a = {static_cast<const uint8_t*>(a.data), format, scales()},
                                       .b = static_cast<const uint8_t*>(ConstArray(weights).data),
                                       .scales = scales(),
                                       .c = c});
    };
    print(
        name, "forward, 8 bits", flops, [&] { codes(out, in, Float8::e4m3, x, y); },
        [&] { grouped(out, in, x, y, true); });
    print(
        name, "inputs', 8 bits", flops, [&] { codes(in, out, Float8::e5m2, y, x); },
        [&] { grouped(in, out, y, x, false); });
    for (const Type type : {Type::f32, Type::bf16}) measure_gradients(name, in, out, x, y, type);
  }

 private:
  const Float8Scale* scales() const { return static_cast<const Float8Scale*>(scales_.get()); }

  template <typename Grouped, typename Dense>
  void print(const char* name, const char* what, double flops, const Grouped& grouped,
             const Dense& dense) {
    const double time = seconds(device_, grouped), other = seconds(device_, dense);
    std::printf(
        "  %-14s %-21s %7.3f ms %6.1f TFLOP/s   compared with %7.3f ms %6.1f   ratio %.2f\n", name,
        what, time * 1e3, flops / time * 1e-12, other * 1e3, flops / other * 1e-12, other / time);
    std::fflush(stdout);
  }

  /// The weights' gradients in this type. Of few rows an expert they are bound by memory.
  void measure_gradients(const char* name, int64_t in, int64_t out, const Numbers& x,
                         const Numbers& y, Type type) {
    const Numbers gradients(device_, experts_ * in * out, type);
    std::vector<Array> gradient;
    for (int64_t i = 0; i < experts_; ++i) {
      gradient.push_back(Array(gradients).from(i * in * out));
    }
    const auto* const offsets = static_cast<const int64_t*>(offsets_.get());
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in * out);
    for (const bool accumulate : {false, true}) {
      const std::string what = std::string("weights', ") + (type == Type::f32 ? "fp32" : "bf16") +
                               (accumulate ? ", added" : "");
      print(
          name, what.c_str(), flops,
          [&] {
            grouped_.run(GroupedMatmulGradient{.m = out,
                                               .n = in,
                                               .rows = rows_,
                                               .offsets = offsets,
                                               .a = y,
                                               .b = x,
                                               .c = gradient,
                                               .accumulate = accumulate});
          },
          [&] {
            products_.run(Matmul{.m = out,
                                 .n = in,
                                 .k = rows_,
                                 .a = y,
                                 .b = x,
                                 .c = gradients,
                                 .a_transposed = true,
                                 .accumulate = accumulate});
          });
    }
  }

  cuda::Device& device_;
  int64_t experts_, rows_;
  cuda::GroupedProducts grouped_{device_};
  cuda::Library library_{device_};
  cuda::Products products_{library_};
  std::shared_ptr<void> offsets_, scales_;
};

void measure(cuda::Device& device, const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> n;
  for (std::string word; std::getline(in, word, ',');) n.push_back(std::atoll(word.c_str()));
  if (n.size() != 5) {
    std::fprintf(stderr, "%s: expected tokens,hidden,ffn,experts,chosen\n", text.c_str());
    std::exit(2);
  }
  std::printf("%s\n", text.c_str());
  Bench bench(device, n);
  bench.measure("hidden to ffn", n[1], 2 * n[2]);
  bench.measure("ffn to hidden", n[2], n[1]);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> shapes(argv + 1, argv + argc);
  if (shapes.empty()) shapes = {"4096,2048,768,128,8", "16384,2048,768,128,8"};
  try {
    cuda::Device device(0);
    for (const auto& shape : shapes) measure(device, shape);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
