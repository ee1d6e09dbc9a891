#include "kernels/cuda/mixture/grouped/grouped.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/products/products.h"

namespace ferry::kernels::cuda::grouped {

int Launches::blocks(const void* kernel, int threads, int cluster, int shared_bytes) {
  int& blocks = blocks_[kernel];
  if (blocks > 0) return blocks;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "asking for shared memory");
  const auto size = static_cast<unsigned>(cluster);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {size, 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(size);
  launch.blockDim = dim3(static_cast<unsigned>(threads));
  launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch), "counting blocks");
  blocks = cluster * std::max(clusters, 1);
  return blocks;
}

int* Launches::counter() {
  if (!counter_) {
    counter_ = device_.allocate(sizeof(int));
    check(cudaMemsetAsync(counter_.get(), 0, sizeof(int), device_.stream()), "clearing");
  }
  return static_cast<int*>(counter_.get());
}

size_t Maps::Hash::operator()(const Key& key) const {
  auto hash = static_cast<size_t>(key.rows * 1000003 + key.columns * 31 + key.box_rows);
  for (const void* matrix : key.matrices) {
    hash = hash * 1000003 + reinterpret_cast<uintptr_t>(matrix) / 16;
  }
  return hash;
}

const CUtensorMap* Maps::of(std::span<const ConstArray> matrices, int64_t rows, int64_t columns,
                            int box_rows) {
  constexpr size_t kMost = 4096;  // enough for any model; more do not repeat
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
    // The host memory has been read when the call returns.
    check(
        cudaMemcpyAsync(there.get(), maps.data(), bytes, cudaMemcpyHostToDevice, device_.stream()),
        "describing matrices");
  }
  return static_cast<const CUtensorMap*>(there.get());
}

}  // namespace ferry::kernels::cuda::grouped

namespace ferry::kernels::cuda {

namespace {

bool takes_matrix(const ConstArray& x, int64_t rows, int64_t columns) {
  return takes_tensor(x, columns, std::array<Dimension, 1>{{{rows, columns}}});
}

bool is_for_hopper(const Device& device, const GroupedMatmul& x) {
  const auto takes_weight = [&](const ConstArray& b) {
    return b.type == x.a.type &&
           takes_matrix(b, x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n);
  };
  return device.architecture() == 90 && x.c.type == x.a.type && takes_matrix(x.a, x.rows, x.k) &&
         takes_matrix(x.c, x.rows, x.n) && std::all_of(x.b.begin(), x.b.end(), takes_weight);
}

bool is_for_hopper(const Device& device, const GroupedMatmulGradient& x) {
  const Type type = x.c.front().type;
  const auto takes_gradient = [&](const Array& c) {
    return c.type == type && takes_matrix({c.data, x.a.type}, x.m, x.n);
  };
  return device.architecture() == 90 && x.a.type == x.b.type &&
         (type == x.a.type || type == Type::f32) && takes_matrix(x.a, x.rows, x.m) &&
         takes_matrix(x.b, x.rows, x.n) && std::all_of(x.c.begin(), x.c.end(), takes_gradient);
}

// The caller has asked has_grouped_float8() and chosen the sizes.
void check_float8(const Device& device, bool has_type, int64_t m, int64_t n) {
  if (device.architecture() == 90 && has_type && m % kFloat8Multiple == 0 &&
      n % kFloat8Multiple == 0) {
    return;
  }
  throw std::logic_error("CUDA: FP8 products of groups of rows that this GPU does not have");
}

}  // namespace

void GroupedProducts::run(const GroupedMatmul& x) {
  if (x.rows == 0 || x.n == 0) return;
  if (!is_for_hopper(device_, x)) return run_in_tiles(device_, x);
  const auto weights = x.b_transposed ? maps_.of(x.b, x.n, x.k, grouped::kWeightBoxRows)
                                      : maps_.of(x.b, x.k, x.n, grouped::kWeightAcrossBoxRows);
  grouped::hopper_rows(device_, launches_, x, weights);
}

// Pairs of 8-bit numbers are moved as numbers of 16 bits.
void GroupedProducts::run(const GroupedFloat8Matmul& x) {
  if (x.rows == 0 || x.n == 0) return;
  check_float8(device_, x.c.type == Type::bf16, x.n, x.k);
  std::vector<ConstArray> weights;
  for (int64_t group = 0; group < x.groups; ++group) {
    weights.push_back({x.b + group * x.n * x.k, Type::bf16});
  }
  grouped::hopper_rows(device_, launches_, x,
                       maps_.of(weights, x.n, x.k / 2, grouped::kWeightBoxRows));
}

void GroupedProducts::run(const GroupedMatmulGradient& x) {
  if ((x.rows == 0 && x.accumulate) || x.n == 0 || x.m == 0 || x.c.empty()) return;
  if (!is_for_hopper(device_, x)) return run_in_tiles(device_, x);
  grouped::hopper_gradient(device_, launches_, x);
}

void GroupedProducts::run(const GroupedFloat8Gradient& x) {
  if ((x.rows == 0 && x.accumulate) || x.n == 0 || x.m == 0 || x.c.empty()) return;
  check_float8(device_, x.c.front().type != Type::f16, x.m, x.n);
  grouped::hopper_gradient(device_, launches_, x);
}

}  // namespace ferry::kernels::cuda
