// Products by BLIS, for the program that is linked to run anywhere (cmake/portable.cmake): Debian
// has it as an archive, and oneDNN not. Products of other types are converted to fp32 first, and
// AMX is not used.
#include <blis.h>

#include "kernels/cpu/products/products.h"
#include "kernels/cpu/signals.h"
#include "kernels/host_products.h"

extern "C" rntm_t ferry_blis_settings();  // cmake/portable/blis_settings.c

namespace ferry::kernels {

bool bf16_instructions_unused() { return __builtin_cpu_supports("avx512bf16"); }

struct Products::State {
  int threads;
};

Products::Products(int threads) : state_(new State{threads}) {}
Products::~Products() = default;

bool Products::run(const Product& p) {
  const bool is_fp32 = p.a.type == Type::f32 && p.b.type == Type::f32 && p.c.type == Type::f32 &&
                       (!p.bias || p.bias.type == Type::f32);
  if (!is_fp32) return false;
  const SignalsBlocked blocked;
  auto* c = static_cast<float*>(p.c.data);
  if (p.bias) {  // the sums begin with it
    const auto* bias = static_cast<const float*>(p.bias.data);
#pragma omp parallel for num_threads(state_->threads)
    for (int64_t row = 0; row < p.m; ++row) {
      float* sums = c + row * p.c_stride;
      for (int64_t i = 0; i < p.n; ++i) sums[i] = p.accumulate ? sums[i] + bias[i] : bias[i];
    }
  }
  rntm_t how = ferry_blis_settings();
  bli_rntm_set_num_threads(state_->threads, &how);
  const float one = 1, kept = p.accumulate || p.bias ? 1 : 0;
  const auto matrix = [](const ConstArray& array) {
    return const_cast<float*>(static_cast<const float*>(array.data));
  };
  bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, p.m, p.n, p.k, const_cast<float*>(&one),
               matrix(p.a), p.a_transposed ? 1 : p.a_stride, p.a_transposed ? p.a_stride : 1,
               matrix(p.b), p.b_transposed ? 1 : p.b_stride, p.b_transposed ? p.b_stride : 1,
               const_cast<float*>(&kept), c, p.c_stride, 1, nullptr, &how);
  return true;
}

}  // namespace ferry::kernels
