// Kernels that compute nothing and count memory and operations, so that plans are measured by
// running the real code.
#pragma once

#include <cstdint>

#include "kernels/forwarding.h"

namespace ferry::kernels {

/// Its memory has addresses but must not be accessed.
class PlanningKernels final : public ForwardingKernels<PlanningKernels> {
 public:
  /// Stands in for kernels of a device of this kind; GPUs are Hoppers unless said otherwise.
  explicit PlanningKernels(DeviceKind kind = DeviceKind::host, bool has_grouped_float8 = true)
      : kind_(kind), has_grouped_float8_(has_grouped_float8) {}

  DeviceKind kind() const noexcept override { return kind_; }
  bool has_grouped_float8() const noexcept override { return has_grouped_float8_; }
  /// Total bytes allocated, including freed ones.
  int64_t bytes() const noexcept { return bytes_; }
  /// Multiplications and additions of matrix products and attention, each counted as one.
  double operations() const noexcept { return operations_; }
  /// Maximum workspace of attention gradients on a Hopper GPU, by our own kernels and with a
  /// library's fused ones where supported.
  int64_t attention_bytes() const noexcept { return attention_bytes_; }
  int64_t fused_attention_bytes() const noexcept { return fused_attention_bytes_; }

  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void*, void*, size_t) override {}
  void download(const void*, void*, size_t) override {}
  void wait() override {}

  void forward(const Matmul& op);
  void forward(const Float8Matmul& op);
  void forward(const GroupedMatmul& op);
  void forward(const GroupedFloat8Matmul& op);
  void forward(const GroupedMatmulGradient& op);
  void forward(const GroupedFloat8Gradient& op);
  void forward(const AttentionForward& op);
  void forward(const AttentionBackward& op);
  template <typename Operation>
  void forward(const Operation&) {}

 private:
  DeviceKind kind_;
  bool has_grouped_float8_;
  int64_t bytes_ = 0, attention_bytes_ = 0, fused_attention_bytes_ = 0;
  double operations_ = 0;
  // Invalid addresses: bits 48 to 63 are neither all zeros nor all ones, and bit 55 is set, which
  // marks kernel addresses even where the other bits are ignored.
  uintptr_t next_address_ = uintptr_t{0x1080} << 48;
};

}  // namespace ferry::kernels
