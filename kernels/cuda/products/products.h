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

// What products by cuBLASLt share.

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

/// What the library has prepared for the shapes so far seen.
///
/// **Bits.** The library's own first choice for a shape says what the bits are. Of its other
/// choices those that give the same bits, on random numbers, are timed when a shape is met for the
/// first time, and the fastest is kept: how long something took never changes a result.
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

/// The same of 8-bit numbers, on Hopper and later.
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

/// Products that nothing better is there for: of any type, size and alignment, and slow.
void run_in_tiles(Device& device, const Matmul& x);
void run_in_tiles(Device& device, const GroupedMatmul& x);
void run_in_tiles(Device& device, const GroupedMatmulGradient& x);

}  // namespace ferry::kernels::cuda
