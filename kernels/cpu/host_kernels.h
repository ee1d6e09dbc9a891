// Kernels whose device is the host: what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/products/products.h"
#include "kernels/cpu/workspace.h"
#include "kernels/kernels.h"

namespace ferry::kernels {

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
