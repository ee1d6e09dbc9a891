// The part of the host's kernels that does not depend on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/products/products.h"
#include "kernels/kernels.h"

namespace ferry::kernels {

// Reusable temporary memory of operations.

/// One buffer, as large as the largest request so far. Each request invalidates the previous
/// contents.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// At least `bytes`, aligned to cache lines, uninitialized. Throws std::bad_alloc.
  std::byte* take(size_t bytes);
  float* floats(int64_t count) {
    return reinterpret_cast<float*>(take(static_cast<size_t>(count) * sizeof(float)));
  }
  double* doubles(int64_t count) {
    return reinterpret_cast<double*>(take(static_cast<size_t>(count) * sizeof(double)));
  }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

/// Independent of the CPU's instruction set.
class HostKernels : public Kernels {
 public:
  explicit HostKernels(int threads);
  ~HostKernels() override;

  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void* from, void* to, size_t bytes) override;
  void download(const void* from, void* to, size_t bytes) override;
  void wait() override;

 protected:
  Workspace workspace_;
  Workspace rest_;    // rows of grouped products
  Workspace spread_;  // factors of products
  Products products_;
};

}  // namespace ferry::kernels
