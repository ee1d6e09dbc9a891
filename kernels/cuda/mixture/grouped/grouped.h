// Products of groups of rows, as experts compute them.
#pragma once

#include <cuda.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda::grouped {

// What kernels that fill the device with clusters of blocks are launched with.

/// Of one device.
class Launches {
 public:
  explicit Launches(Device& device) : device_(device) {}

  /// How many blocks of the kernel run at once, in whole clusters. Asked of the driver, and the
  /// kernel allowed its shared memory, when it is met for the first time.
  int blocks(const void* kernel, int threads, int cluster, int shared_bytes);

  /// Of the device: zero before a kernel and, by its own doing, after it.
  int* counter();

 private:
  Device& device_;
  std::unordered_map<const void*, int> blocks_;
  std::shared_ptr<void> counter_;
};

// Maps of many matrices of one shape and type, in the device's memory.

/// Matrices that lie where they lay are mapped once: weights and their gradients do not move.
class Maps {
 public:
  explicit Maps(Device& device) : device_(device) {}

  /// One map for each matrix [rows, columns] of one type, in boxes of 64 columns (tensor_map.h), in
  /// the device's memory until the next call.
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

// Products of groups of rows by kernels for Hopper.

/// Rows of a box of a weight as the left factor: [n, k] where it is transposed, [k, n] where it is
/// not.
constexpr int kWeightBoxRows = 128, kWeightAcrossBoxRows = 64;
/// c[rows of g] = a[rows of g] · b[g]: `weights` are the maps of b in the device's memory.
void hopper_rows(Device& device, Launches& launches, const GroupedMatmul& x,
                 const CUtensorMap* weights);

/// c[g] = or += transposed a[rows of g] · b[rows of g].
void hopper_gradient(Device& device, Launches& launches, const GroupedMatmulGradient& x);

}  // namespace ferry::kernels::cuda::grouped

namespace ferry::kernels::cuda {

/// On Hopper by its tensor cores, where types and alignments allow that; else in tiles. The host
/// needs not know how many rows a group has. Sums have the order of the depth.
class GroupedProducts {
 public:
  explicit GroupedProducts(Device& device) : device_(device), maps_(device), launches_(device) {}

  void run(const GroupedMatmul& x);
  void run(const GroupedMatmulGradient& x);

 private:
  Device& device_;
  grouped::Maps maps_;
  grouped::Launches launches_;
};

}  // namespace ferry::kernels::cuda
