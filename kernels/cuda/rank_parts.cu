#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rank_parts.h"

namespace ferry::kernels::cuda {

namespace {

struct SumOfRanks {
  __device__ static float of(float a, float b) { return a + b; }
};
struct LargestOfRanks {
  __device__ static float of(float a, float b) { return a < b || b != b ? b : a; }
};

template <typename T, typename Combine>
struct CombinedParts {
  RankParts parts;
  T* result;

  __device__ const T* part(int rank) const {
    const auto* const others = static_cast<const T*>(parts.others);
    if (parts.own == nullptr) return others + rank * parts.stride;
    if (rank == parts.own_rank) return static_cast<const T*>(parts.own);
    return others + (rank - (rank > parts.own_rank ? 1 : 0)) * parts.stride;
  }
  template <int W>
  __device__ void at(int64_t i) const {
    Pack<W> all = load<W>(part(0) + i);
#pragma unroll 4
    for (int rank = 1; rank < parts.ranks; ++rank) {
      const Pack<W> one = load<W>(part(rank) + i);
#pragma unroll
      for (int k = 0; k < W; ++k) all.v[k] = Combine::of(all.v[k], one.v[k]);
    }
    store(result + i, all);
  }
};

struct AddedParts {
  const double* parts;
  int ranks;
  double* result;
  int64_t count;

  __device__ void operator()(int64_t i) const {
    double sum = parts[i];
    for (int rank = 1; rank < ranks; ++rank) sum += parts[rank * count + i];
    result[i] = sum;
  }
};

template <int W, typename F>
void launch_packs(const Device& device, cudaStream_t stream, int64_t first, int64_t packs,
                  const F& f) {
  if (packs == 0) return;
  each_kernel<<<grid_of(device, ceil_div(packs, kThreads)), kThreads, 0, stream>>>(
      packs, PackAt<W, F>{f, first});
  check_launch("combining what ranks have");
}

}  // namespace

void combine_parts(const Device& device, cudaStream_t stream, Combination combination,
                   const RankParts& parts, const Array& result, int64_t count) {
  const bool packed = is_packed({parts.own, parts.others, result.data}, {parts.stride});
  const int64_t packs = packed ? count / kPack : 0;
  const auto launch = [&](const auto& f) {
    launch_packs<kPack>(device, stream, 0, packs, f);
    launch_packs<1>(device, stream, packs * kPack, count - packs * kPack, f);
  };
  with_type(result.type, [&]<typename T>(T*) {
    if (combination == Combination::sum) {
      launch(CombinedParts<T, SumOfRanks>{parts, elements<T>(result)});
    } else {
      launch(CombinedParts<T, LargestOfRanks>{parts, elements<T>(result)});
    }
  });
}

void add_parts(const Device& device, cudaStream_t stream, const double* parts, int ranks,
               double* result, int64_t count) {
  each_kernel<<<grid_of(device, ceil_div(count, kThreads)), kThreads, 0, stream>>>(
      count, AddedParts{parts, ranks, result, count});
  check_launch("adding up what ranks have");
}

}  // namespace ferry::kernels::cuda
