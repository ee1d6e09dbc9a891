#include "kernels/cuda/products.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

using cuda::check;
void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLASLt: ") + what + ": " +
                           cublasLtGetStatusString(status));
}

cudaDataType_t data_type(Type type) {
  switch (type) {
    case Type::bf16:
      return CUDA_R_16BF;
    case Type::f16:
      return CUDA_R_16F;
    case Type::f32:
      break;
  }
  return CUDA_R_32F;
}

/// The greatest power of two, 256 at most, that an address is a multiple of.
uint32_t alignment_of(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(value & (~value + 1));
}

/// What a prepared product is for.
struct Key {
  std::array<int64_t, 3> sizes;
  std::array<Type, 2> types;
  std::array<uint32_t, 5> alignments;
  bool a_transposed, b_transposed, accumulate, has_bias, is_activated;

  explicit Key(const Matmul& x)
      : sizes{x.m, x.n, x.k},
        types{x.a.type, x.c.type},
        alignments{alignment_of(x.a.data), alignment_of(x.b.data), alignment_of(x.c.data),
                   alignment_of(x.bias.data), alignment_of(x.activated.data)},
        a_transposed(x.a_transposed),
        b_transposed(x.b_transposed),
        accumulate(x.accumulate),
        has_bias(static_cast<bool>(x.bias)),
        is_activated(static_cast<bool>(x.activated)) {}
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.a_transposed | key.b_transposed << 1 | key.accumulate << 2;
    for (const auto size : key.sizes) hash = hash * 1000003 + static_cast<size_t>(size);
    for (const auto alignment : key.alignments) hash = hash * 31 + alignment;
    return hash * 31 + static_cast<size_t>(key.types[0]) * 3 + static_cast<size_t>(key.types[1]);
  }
};

/// A matrix of the library's, which counts columns first: ours is its transpose.
class Layout {
 public:
  Layout(Type type, int64_t rows, int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&layout_, data_type(type), static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), rows),
          "describing a matrix");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  cublasLtMatrixLayout_t get() const noexcept { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

cublasLtEpilogue_t epilogue_of(const Matmul& x) {
  if (x.activated) return x.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return x.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// What is prepared. cᵀ = bᵀ aᵀ: the library's left factor is our right one. What an activation
/// function is applied to is the library's auxiliary result.
struct Plan {
  explicit Plan(const Matmul& x)
      : left(x.b.type, x.b_transposed ? x.k : x.n, x.b_transposed ? x.n : x.k),
        right(x.a.type, x.a_transposed ? x.m : x.k, x.a_transposed ? x.k : x.m),
        result(x.c.type, x.n, x.m) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describing a product");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
            "describing a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, x.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, x.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(x));
    if (x.bias) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(x.bias.type)));
    }
    if (x.activated) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, x.n);
    set_pointers(x);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { cublasLtMatmulDescDestroy(operation); }

  void set_pointers(const Matmul& x) {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
      check(cublasLtMatmulDescSetAttribute(operation, attribute, &pointer, sizeof pointer),
            "naming a product's arrays");
    };
    if (x.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias.data);
    if (x.activated) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x.c.data);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  Layout left, right, result;
  cublasLtMatmulAlgo_t algorithm{};
  bool exists = false;  // false: the library has no kernel for it
};

using Memory = std::shared_ptr<void>;

/// Null where the device has no room.
Memory try_allocate(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return {memory, [](void* p) { (void)cudaFree(p); }};
}

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

struct Products::State {
  // What NVIDIA recommends for Hopper; more does not gain.
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  explicit State(Device& the_device) : device(the_device) {
    workspace = device.allocate(kWorkspaceBytes);
    check(cublasLtCreate(&library), "starting");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    (void)cudaSetDevice(device.index());
    (void)cudaStreamSynchronize(device.stream());
    cublasLtDestroy(library);
  }

  cublasStatus_t start(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& x) {
    const float one = 1, beta = x.accumulate ? 1 : 0;
    void* const result = x.activated ? x.activated.data : x.c.data;
    return cublasLtMatmul(library, plan.operation, &one, x.b.data, plan.left.get(), x.a.data,
                          plan.right.get(), &beta, result, plan.result.get(), result,
                          plan.result.get(), &algorithm, workspace.get(), kWorkspaceBytes,
                          device.stream());
  }

  std::vector<cublasLtMatmulHeuristicResult_t> choices(const Plan& plan, const Key& key);
  void choose(Plan& plan, const Matmul& x, const Key& key);
  double seconds(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& x);

  Device& device;
  cublasLtHandle_t library = nullptr;
  std::shared_ptr<void> workspace;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans;
};

/// The library's choices, the best by its own judgement first.
std::vector<cublasLtMatmulHeuristicResult_t> Products::State::choices(const Plan& plan,
                                                                      const Key& key) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for a kernel");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Sums of parts in a 16-bit type would be rounded more than once.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[1]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[0]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[2]);
  std::vector<cublasLtMatmulHeuristicResult_t> results(16);
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      library, plan.operation, plan.left.get(), plan.right.get(), plan.result.get(),
      plan.result.get(), preference, static_cast<int>(results.size()), results.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  return results;
}

/// The least of a few times; infinite where the kernel does not run.
double Products::State::seconds(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                                const Matmul& x) {
  const Event begin, end;
  double least = INFINITY;
  for (int time = 0; time < 4; ++time) {
    (void)cudaEventRecord(begin.get(), device.stream());
    if (start(plan, algorithm, x) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    (void)cudaEventRecord(end.get(), device.stream());
    float milliseconds = 0;
    check(cudaEventSynchronize(end.get()), "timing a product");
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing a product");
    if (time > 0) least = std::min(least, static_cast<double>(milliseconds));
  }
  return least;
}

void Products::State::choose(Plan& plan, const Matmul& x, const Key& key) {
  const auto all = choices(plan, key);
  plan.exists = !all.empty();
  if (all.empty()) return;
  plan.algorithm = all.front().algo;
  if (static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k) < 1e8) return;

  const auto bytes = [](int64_t count, Type type) {
    return static_cast<size_t>(count * size_bytes(type));
  };
  const size_t c_bytes = bytes(x.m * x.n, x.c.type);
  const auto a = try_allocate(bytes(x.m * x.k, x.a.type));
  const auto b = try_allocate(bytes(x.k * x.n, x.b.type));
  const auto wanted = try_allocate(c_bytes), got = try_allocate(c_bytes);
  if (!a || !b || !wanted || !got) return;  // the same bits, perhaps later
  Matmul trial = x;
  const Array left{a.get(), x.a.type}, right{b.get(), x.b.type};
  cuda::run(device, FillNormal{.count = x.m * x.k, .key = 1, .y = left});
  cuda::run(device, FillNormal{.count = x.k * x.n, .key = 2, .y = right});
  trial.a = left;
  trial.b = right;
  // What stands in the product's own place of c changes: it is about to be computed.
  void*& result = x.activated ? trial.activated.data : trial.c.data;
  const auto compute = [&](const cublasLtMatmulAlgo_t& algorithm, void* c) {
    result = c;
    check(cudaMemsetAsync(c, 0, c_bytes, device.stream()), "clearing");
    return start(plan, algorithm, trial) == CUBLAS_STATUS_SUCCESS;
  };
  if (!compute(plan.algorithm, wanted.get())) return;
  result = got.get();
  double best = seconds(plan, plan.algorithm, trial);
  for (size_t i = 1; i < all.size(); ++i) {
    if (!compute(all[i].algo, got.get())) continue;
    if (!same_bytes(device, wanted.get(), got.get(), static_cast<int64_t>(c_bytes))) continue;
    const double time = seconds(plan, all[i].algo, trial);
    if (time >= best) continue;
    best = time;
    plan.algorithm = all[i].algo;
  }
}

Products::Products(Device& device) : state_(std::make_unique<State>(device)) {}
Products::~Products() = default;

namespace {

/// The library knows one activation function, and computes it as exactly as 16 bits can tell.
bool is_librarys(const Matmul& x) {
  return x.activation == Activation::gelu_tanh && x.c.type != Type::f32 && x.c.type == x.a.type;
}

}  // namespace

void Products::run(const Matmul& x) {
  if (!x.activated) return run_plain(x);
  if (is_librarys(x) && run_prepared(x)) return;
  Matmul product = x;
  product.activated = {};
  run_plain(product);
  cuda::run(state_->device,
            ActivationForward{
                .kind = x.activation, .rows = x.m, .width = x.n, .x = x.c, .y = x.activated});
}

void Products::run_plain(const Matmul& x) {
  if (!run_prepared(x)) run_in_tiles(state_->device, x);
}

/// False where the library has nothing for it.
bool Products::run_prepared(const Matmul& x) {
  if (x.m == 0 || x.n == 0 || (x.k == 0 && x.accumulate)) return true;
  if (x.k == 0) return false;
  const Key key(x);
  auto& plan = state_->plans[key];
  if (!plan) {
    plan = std::make_unique<Plan>(x);
    state_->choose(*plan, x, key);
  }
  if (!plan->exists) return false;
  plan->set_pointers(x);
  check(state_->start(*plan, plan->algorithm, x), "computing a product");
  return true;
}

}  // namespace ferry::kernels::cuda
