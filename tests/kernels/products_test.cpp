// Which products the library computes itself.
#include "kernels/cpu/products/products.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace ferry::kernels {
namespace {

bool runs_bf16() {
  std::vector<uint16_t> a(64 * 64), b(64 * 64);
  std::vector<float> c(64 * 64);
  Product product;
  product.m = product.n = product.k = 64;
  product.a = ConstArray(a.data(), Type::bf16);
  product.b = ConstArray(b.data(), Type::bf16);
  product.c = Array(c.data());
  product.a_stride = product.b_stride = product.c_stride = 64;
  return Products(1).run(product);
}

// There the library is several times slower than in fp32, into which factors are converted then.
TEST(Products, InBf16AreNotTheLibrarysWithoutInstructionsForThem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the library looks once
  for (const char* instructions : {"AVX512_CORE_VNNI", "AVX512_CORE", "AVX2"}) {
    EXPECT_EXIT(
        {
          ::setenv("ONEDNN_MAX_CPU_ISA", instructions, 1);
          std::exit(runs_bf16() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "")
        << instructions;
  }
}

}  // namespace
}  // namespace ferry::kernels
