#include "kernels/cuda/mixture/grouped/maps.h"

#include <array>
#include <utility>

#include "kernels/cuda/hopper/tensor_map.h"

namespace ferry::kernels::cuda::grouped {

size_t Maps::Hash::operator()(const Key& key) const {
  auto hash = static_cast<size_t>(key.rows * 1000003 + key.columns * 31 + key.box_rows);
  for (const void* matrix : key.matrices) {
    hash = hash * 1000003 + reinterpret_cast<uintptr_t>(matrix) / 16;
  }
  return hash;
}

const CUtensorMap* Maps::of(std::span<const ConstArray> matrices, int64_t rows, int64_t columns,
                            int box_rows) {
  constexpr size_t kMost = 4096;  // of models; more than that do not come again
  if (maps_.size() >= kMost) maps_.clear();
  Key key{{}, matrices.front().type, rows, columns, box_rows};
  for (const ConstArray& matrix : matrices) key.matrices.push_back(matrix.data);
  auto& there = maps_[std::move(key)];
  if (!there) {
    std::vector<CUtensorMap> maps;
    for (const ConstArray& matrix : matrices) {
      maps.push_back(
          tensor_map(matrix, columns, std::array<Dimension, 1>{{{rows, columns}}}, box_rows));
    }
    const size_t bytes = maps.size() * sizeof(CUtensorMap);
    there = device_.allocate(bytes);
    // The host's memory is read when the call returns.
    check(cudaMemcpyAsync(there.get(), maps.data(), bytes, cudaMemcpyHostToDevice,
                          device_.stream()),
          "describing matrices");
  }
  return static_cast<const CUtensorMap*>(there.get());
}

}  // namespace ferry::kernels::cuda::grouped
