// FP8 products by cuBLASLt.
#include <array>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/products/products.h"

namespace ferry::kernels::cuda {

namespace {

cudaDataType_t data_type(Float8 format) {
  return format == Float8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}
cudaDataType_t result_type(Type type) { return type == Type::f32 ? CUDA_R_32F : CUDA_R_16BF; }

/// Key of a prepared product. Alignments are those required by the operation.
struct Key {
  std::array<int64_t, 3> sizes;
  std::array<Float8, 2> formats;
  Type result;
  bool accumulate, fast, has_bias;

  explicit Key(const Float8Matmul& x)
      : sizes{x.m, x.n, x.k},
        formats{x.a.format, x.b.format},
        result(x.c.type),
        accumulate(x.accumulate),
        fast(x.fast),
        has_bias(static_cast<bool>(x.bias)) {}
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.accumulate | key.fast << 1 | key.has_bias << 2;
    for (const auto size : key.sizes) hash = hash * 1000003 + static_cast<size_t>(size);
    for (const auto format : key.formats) hash = hash * 3 + static_cast<size_t>(format);
    return hash * 3 + static_cast<size_t>(key.result);
  }
};

/// cᵀ = b aᵀ: the library's left factor is our right one, passed as transposed.
struct Plan {
  explicit Plan(const Float8Matmul& x)
      : left(data_type(x.b.format), x.k, x.n),
        right(data_type(x.a.format), x.k, x.m),
        result(result_type(x.c.type), x.n, x.m) {
    operation.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    operation.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    operation.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(x.fast));
    if (x.bias) {
      operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      operation.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(CUDA_R_16BF));
    }
    set_pointers(x);
  }

  void set_pointers(const Float8Matmul& x) {
    operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &x.b.scale->inverse);
    operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x.a.scale->inverse);
    if (x.bias) operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias.data);
  }

  Description operation;
  Layout left, right, result;
  cublasLtMatmulAlgo_t algorithm{};
};

}  // namespace

struct Float8Products::State {
  explicit State(Library& the_library) : library(the_library) {}

  cublasStatus_t start(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                       const Float8Matmul& x) {
    const float one = 1, beta = x.accumulate ? 1 : 0;
    return cublasLtMatmul(library.handle(), plan.operation.get(), &one, x.b.data, plan.left.get(),
                          x.a.data, plan.right.get(), &beta, x.c.data, plan.result.get(), x.c.data,
                          plan.result.get(), &algorithm, library.workspace(),
                          Library::kWorkspaceBytes, library.device().stream());
  }

  void choose(Plan& plan, const Float8Matmul& x);

  Library& library;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans;
};

void Float8Products::State::choose(Plan& plan, const Float8Matmul& x) {
  const auto all =
      choices(library, {plan.operation.get(), plan.left.get(), plan.right.get(), plan.result.get(),
                        kFloat8Multiple, kFloat8Multiple, kFloat8Multiple});
  if (all.empty()) {
    throw std::runtime_error("cuBLASLt has no product of 8-bit numbers for " + std::to_string(x.m) +
                             " x " + std::to_string(x.n) + " x " + std::to_string(x.k));
  }
  plan.algorithm = all.front();
  if (static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k) < 1e8) return;

  Device& device = library.device();
  // Random numbers with their own scale: the product's may not be known yet.
  const auto fill = [&](int64_t rows, int64_t width, Float8 format, uint64_t key,
                        const Float8Scale* scale) {
    const auto count = static_cast<size_t>(rows * width);
    const auto wide = device.allocate_in_order(2 * count);
    auto codes = wide ? device.allocate_in_order(count) : nullptr;
    if (!codes) return codes;
    const Array numbers(wide.get(), Type::bf16);
    cuda::run(device, FillNormal{.count = rows * width, .key = key, .y = numbers});
    cuda::run(device, Quantize{.rows = rows,
                               .width = width,
                               .x = numbers,
                               .to = {.format = format,
                                      .scale = scale,
                                      .by_row = static_cast<uint8_t*>(codes.get())}});
    return codes;
  };
  const auto scale = device.allocate_in_order(sizeof(Float8Scale));
  if (!scale) return;  // same bits, possibly slower
  auto* const one = static_cast<Float8Scale*>(scale.get());
  cuda::run(device, FillConstant{.count = 2, .value = 1, .y = Array(&one->inverse)});
  const auto a = fill(x.m, x.k, x.a.format, 1, one), b = fill(x.n, x.k, x.b.format, 2, one);
  if (!a || !b) return;
  Float8Matmul trial = x;
  trial.a = {static_cast<const uint8_t*>(a.get()), x.a.format, one};
  trial.b = {static_cast<const uint8_t*>(b.get()), x.b.format, one};
  plan.set_pointers(trial);
  const auto compute = [&](const cublasLtMatmulAlgo_t& algorithm, void* c) {
    trial.c.data = c;
    return start(plan, algorithm, trial) == CUBLAS_STATUS_SUCCESS;
  };
  const auto bytes = static_cast<size_t>(x.m * x.n * size_bytes(x.c.type));
  plan.algorithm = fastest(device, all, bytes, compute);
}

Float8Products::Float8Products(Library& library) : state_(std::make_unique<State>(library)) {}
Float8Products::~Float8Products() = default;

void Float8Products::run(const Float8Matmul& x) {
  if (x.m == 0 || x.n == 0 || (x.k == 0 && x.accumulate)) return;
  if (alignment_of(x.c.data) < kFloat8Multiple) return run_aside(x);
  auto& plan = state_->plans[Key(x)];
  if (!plan) {
    plan = std::make_unique<Plan>(x);
    state_->choose(*plan, x);
  }
  plan->set_pointers(x);
  check(state_->start(*plan, plan->algorithm, x), "computing a product of 8-bit numbers");
}

// A gradient may be unaligned in its buffer: the product is computed in aligned fp32 memory and
// then rounded once.
void Float8Products::run_aside(const Float8Matmul& x) {
  Device& device = state_->library.device();
  Float8Matmul aligned = x;
  aligned.c = Array(device.floats(x.m * x.n));
  aligned.accumulate = false;
  run(aligned);
  if (x.accumulate) {
    cuda::run(device, Add{.count = x.m * x.n, .a = x.c, .b = aligned.c, .y = x.c});
  } else {
    cuda::run(device, Copy{.count = x.m * x.n, .x = aligned.c, .y = x.c});
  }
}

}  // namespace ferry::kernels::cuda
