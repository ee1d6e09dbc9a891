// Memory that operations compute in, kept from one to the next.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::kernels {

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

}  // namespace ferry::kernels
