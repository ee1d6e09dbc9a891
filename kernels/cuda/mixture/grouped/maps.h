// Maps of many matrices of one shape and type, in the device's memory.
#pragma once

#include <cuda.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda::grouped {

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

}  // namespace ferry::kernels::cuda::grouped
