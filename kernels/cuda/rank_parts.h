// Combines several ranks' values of the same elements.
#pragma once

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// The parts of all ranks, of one type. If `own` is null, all are in `others`, by rank, `stride`
/// elements apart; otherwise rank `own_rank` has `own`, and `others` has the rest.
struct RankParts {
  int ranks = 1;
  const void* own = nullptr;
  int own_rank = 0;
  const void* others = nullptr;
  int64_t stride = 0;
};

/// The maximum is NaN if any rank's element is.
enum class Combination { sum, largest };

/// Queues on `stream`: `result` becomes the elementwise sum of the parts, added from rank 0 on in
/// fp32 and rounded once, or their maximum. `result` may be `own`.
void combine_parts(const Device& device, cudaStream_t stream, Combination combination,
                   const RankParts& parts, const Array& result, int64_t count);

/// Queues on `stream`: `result` (count numbers) becomes the sum of the consecutive parts of `ranks`
/// ranks, added from rank 0 on.
void add_parts(const Device& device, cudaStream_t stream, const double* parts, int ranks,
               double* result, int64_t count);

}  // namespace ferry::kernels::cuda
