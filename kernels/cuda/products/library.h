// What products by cuBLASLt share.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

void check(cublasStatus_t status, const char* what);

/// The greatest power of two, 256 at most, that an address is a multiple of.
uint32_t alignment_of(const void* address);

/// The library on one device, with memory that its kernels compute in.
class Library {
 public:
  // What NVIDIA recommends for Hopper; more does not gain.
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

/// A matrix of the library's, which counts columns first: ours is its transpose.
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

/// What a product is, for the library.
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

/// A product as the library sees it; alignments in bytes.
struct LibraryProduct {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  uint32_t left_alignment = 0, right_alignment = 0, result_alignment = 0;
};

/// The library's kernels for it, the best by its own judgement first; none where it has none.
std::vector<cublasLtMatmulAlgo_t> choices(const Library& library, const LibraryProduct& product);

/// Of `all`, which are not none, the fastest of those that have the first one's bits, and the first
/// where there are too few results to tell.
/// start(algorithm, result) queues a product of numbers at random, and tells whether it could.
using StartProduct = std::function<bool(const cublasLtMatmulAlgo_t& algorithm, void* result)>;
cublasLtMatmulAlgo_t fastest(Device& device, const std::vector<cublasLtMatmulAlgo_t>& all,
                             size_t result_bytes, const StartProduct& start);

}  // namespace ferry::kernels::cuda
