// Products of groups of rows, as experts compute them.
#pragma once

#include <cuda.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda::grouped {

// Launch parameters of kernels that fill the device with clusters of blocks.

/// For one device.
class Launches {
 public:
  explicit Launches(Device& device) : device_(device) {}

  /// How many blocks of the kernel run at once, in whole clusters. On first use of a kernel it
  /// queries the driver and sets the kernel's shared memory limit.
  int blocks(const void* kernel, int threads, int cluster, int shared_bytes);

  /// A device counter, zero before a kernel and reset by it.
  int* counter();

 private:
  Device& device_;
  std::unordered_map<const void*, int> blocks_;
  std::shared_ptr<void> counter_;
};

// TMA maps of many matrices of one shape and type, in device memory.

/// Matrices at the same addresses are mapped once: weights and their gradients do not move.
class Maps {
 public:
  explicit Maps(Device& device) : device_(device) {}

  /// A map for each matrix [rows, columns] of one type, with boxes of 64 columns (tensor_map.h),
  /// valid until the next call.
  const CUtensorMap* of(std::span<const ConstArray> matrices, int64_t rows, int64_t columns,
                        int box_rows);

 private:
  struct Key {
    std::vector<const void*> matrices;
    Type type;
    int64_t rows, columns;
    int box_rows;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  Device& device_;
  std::unordered_map<Key, std::shared_ptr<void>, Hash> maps_;
};

// Kernels for Hopper.

/// Rows per box of a weight as the left factor: [n, k] if transposed, otherwise [k, n].
constexpr int kWeightBoxRows = 128, kWeightAcrossBoxRows = 64;
/// c[rows of g] = a[rows of g] · b[g]: `weights` are the maps of b in device memory.
void hopper_rows(Device& device, Launches& launches, const GroupedMatmul& x,
                 const CUtensorMap* weights);
/// The same of 8-bit numbers: maps of their pairs as numbers of 16 bits.
void hopper_rows(Device& device, Launches& launches, const GroupedFloat8Matmul& x,
                 const CUtensorMap* weights);

/// c[g] = or += transposed a[rows of g] · b[rows of g].
void hopper_gradient(Device& device, Launches& launches, const GroupedMatmulGradient& x);
void hopper_gradient(Device& device, Launches& launches, const GroupedFloat8Gradient& x);

}  // namespace ferry::kernels::cuda::grouped

namespace ferry::kernels::cuda {

/// On Hopper uses tensor cores if types and alignments allow, otherwise plain tiles. The host need
/// not know how many rows a group has. Sums are in the order of the depth.
class GroupedProducts {
 public:
  explicit GroupedProducts(Device& device) : device_(device), maps_(device), launches_(device) {}

  void run(const GroupedMatmul& x);
  void run(const GroupedMatmulGradient& x);

  // Only on Hopper.
  void run(const GroupedFloat8Matmul& x);
  void run(const GroupedFloat8Gradient& x);

 private:
  Device& device_;
  grouped::Maps maps_;
  grouped::Launches launches_;
};

}  // namespace ferry::kernels::cuda
