// What several ranks have of the same elements, made into one.
#pragma once

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// The parts of all ranks, of one type. Where `own` is null all lie in `others`, by rank, `stride`
/// elements apart; else rank `own_rank` has `own`, and those of the others lie in `others`.
struct RankParts {
  int ranks = 1;
  const void* own = nullptr;
  int own_rank = 0;
  const void* others = nullptr;
  int64_t stride = 0;
};

/// Where an element of any rank is not a number, the largest is none either.
enum class Combination { sum, largest };

/// Queues on `stream`: `result` becomes the parts' sum, added up from rank 0 on in fp32 and rounded
/// once, or their largest, by element. `result` may be `own`.
void combine_parts(const Device& device, cudaStream_t stream, Combination combination,
                   const RankParts& parts, const Array& result, int64_t count);

/// Queues on `stream`: `result` (count numbers) becomes the sum of the parts of `ranks` ranks,
/// which lie one after another, added up from rank 0 on.
void add_parts(const Device& device, cudaStream_t stream, const double* parts, int ranks,
               double* result, int64_t count);

}  // namespace ferry::kernels::cuda
