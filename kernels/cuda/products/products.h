// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda {

// Shared by products with cuBLASLt.

void check(cublasStatus_t status, const char* what);

/// The alignment of an address: the largest power of two, at most 256.
uint32_t alignment_of(const void* address);

/// The library on one device, with its workspace.
class Library {
 public:
  // NVIDIA's recommendation for Hopper; more does not help.
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  explicit Library(Device& device);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Device& device() const noexcept { return device_; }
  cublasLtHandle_t handle() const noexcept { return handle_; }
  void* workspace() const noexcept { return workspace_.get(); }

 private:
  Device& device_;
  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<void> workspace_;
};

/// A matrix of the library, which is column-major: the transpose of ours.
class Layout {
 public:
  Layout(cudaDataType_t type, int64_t rows, int64_t columns);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  cublasLtMatrixLayout_t get() const noexcept { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// A product's descriptor.
class Description {
 public:
  Description();
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() { cublasLtMatmulDescDestroy(operation_); }
  cublasLtMatmulDesc_t get() const noexcept { return operation_; }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value),
          "describing a product");
  }

 private:
  cublasLtMatmulDesc_t operation_ = nullptr;
};

/// A product in the library's terms; alignments in bytes.
struct LibraryProduct {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  uint32_t left_alignment = 0, right_alignment = 0, result_alignment = 0;
};

/// The library's algorithms for it, best by its heuristics first; empty if there are none.
std::vector<cublasLtMatmulAlgo_t> choices(const Library& library, const LibraryProduct& product);

/// Of `all`, which is not empty, the fastest algorithm with the same bits as the first one, or the
/// first if there are too few results. start(algorithm, result) queues a product of random
/// numbers, and returns whether it could.
using StartProduct = std::function<bool(const cublasLtMatmulAlgo_t& algorithm, void* result)>;
cublasLtMatmulAlgo_t fastest(Device& device, const std::vector<cublasLtMatmulAlgo_t>& all,
                             size_t result_bytes, const StartProduct& start);

/// A cache of the library's algorithms by shape. **Bits.** The library's first choice for a shape
/// defines the bits. Of its other choices, those with the same bits on random numbers are timed on
/// first use of a shape, and the fastest is kept: timing never changes a result.
class Products {
 public:
  explicit Products(Library& library);
  ~Products();

  void run(const Matmul& x);

 private:
  void run_plain(const Matmul& x);
  bool run_prepared(const Matmul& x);

  struct State;
  std::unique_ptr<State> state_;
};

/// The same for FP8, on Hopper and later.
class Float8Products {
 public:
  explicit Float8Products(Library& library);
  ~Float8Products();

  void run(const Float8Matmul& x);

 private:
  void run_aside(const Float8Matmul& x);

  struct State;
  std::unique_ptr<State> state_;
};

/// The slow fallback for products of any type, size and alignment.
void run_in_tiles(Device& device, const Matmul& x);
void run_in_tiles(Device& device, const GroupedMatmul& x);
void run_in_tiles(Device& device, const GroupedMatmulGradient& x);

}  // namespace ferry::kernels::cuda
