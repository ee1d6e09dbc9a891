// Kernels whose device is the host: what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/products/products.h"
#include "kernels/kernels.h"

namespace ferry::kernels {

// Memory that operations compute in, kept from one to the next.

/// One buffer, as large as the largest operation so far asked for. What it held is lost when it is
/// taken again.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// At least `bytes`, aligned to cache lines, with anything in it. Throws std::bad_alloc.
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

/// What is the same whatever instructions the processor has.
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
