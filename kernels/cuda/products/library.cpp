#include "kernels/cuda/products/library.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

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

/// The least of a few times; infinite where the kernel does not run.
double seconds(const Device& device, const std::function<bool()>& start) {
  const Event begin, end;
  double least = INFINITY;
  for (int time = 0; time < 4; ++time) {
    (void)cudaEventRecord(begin.get(), device.stream());
    if (!start()) return INFINITY;
    (void)cudaEventRecord(end.get(), device.stream());
    float milliseconds = 0;
    check(cudaEventSynchronize(end.get()), "timing a product");
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing a product");
    if (time > 0) least = std::min(least, static_cast<double>(milliseconds));
  }
  return least;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLASLt: ") + what + ": " +
                           cublasLtGetStatusString(status));
}

uint32_t alignment_of(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(value & (~value + 1));
}

Library::Library(Device& device) : device_(device), workspace_(device.allocate(kWorkspaceBytes)) {
  check(cublasLtCreate(&handle_), "starting");
}

Library::~Library() {
  (void)cudaSetDevice(device_.index());
  (void)cudaStreamSynchronize(device_.stream());
  cublasLtDestroy(handle_);
}

Layout::Layout(cudaDataType_t type, int64_t rows, int64_t columns) {
  check(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), rows),
        "describing a matrix");
}

Description::Description() {
  check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
}

std::vector<cublasLtMatmulAlgo_t> choices(const Library& library, const LibraryProduct& product) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for a kernel");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Library::kWorkspaceBytes});
  // Sums of parts in a 16-bit type would be rounded more than once.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.left_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.right_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.result_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.result_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(16);
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      library.handle(), product.operation, product.left, product.right, product.result,
      product.result, preference, static_cast<int>(results.size()), results.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const auto& result : results) algorithms.push_back(result.algo);
  return algorithms;
}

cublasLtMatmulAlgo_t fastest(Device& device, const std::vector<cublasLtMatmulAlgo_t>& all,
                             size_t result_bytes, const StartProduct& start) {
  // Another order of sums shows in most results in fp32, but in only one of some ten thousand that
  // are rounded to 16 bits.
  constexpr size_t kTellingBytes = size_t{1} << 19;
  if (result_bytes < kTellingBytes) return all.front();
  const auto wanted = device.allocate_in_order(result_bytes);
  const auto got = device.allocate_in_order(result_bytes);
  if (!wanted || !got) return all.front();  // the same bits, perhaps later
  const auto compute = [&](const cublasLtMatmulAlgo_t& algorithm, void* result) {
    check(cudaMemsetAsync(result, 0, result_bytes, device.stream()), "clearing");
    return start(algorithm, result);
  };
  const auto time = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return seconds(device, [&] { return start(algorithm, got.get()); });
  };
  size_t chosen = 0;
  if (!compute(all[0], wanted.get())) return all[0];
  double best = time(all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    if (!compute(all[i], got.get())) continue;
    if (!same_bytes(device, wanted.get(), got.get(), static_cast<int64_t>(result_bytes))) continue;
    const double least = time(all[i]);
    if (least >= best) continue;
    best = least;
    chosen = i;
  }
  return all[chosen];
}

}  // namespace ferry::kernels::cuda
