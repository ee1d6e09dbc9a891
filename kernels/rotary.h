// Rotary position embedding (Su et al. 2021), in place.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// Turns pairs of elements of each head by the angle of the token's position. `cosine` and `sine`
/// have a row of dim / 2 elements for each of the `positions`; token i has row i /
/// tokens_per_position (tokens lie sequence first). The first `dim` elements of a head turn; the
/// rest stays.
struct Rotary {
  int64_t positions = 0, tokens_per_position = 1;
  int64_t heads = 0, dim = 0;
  int64_t token_stride = 0, group_stride = 0, head_stride = 0;  // in elements
  int64_t heads_per_group =
      1;  // head h begins at (h / heads_per_group) · group_stride + (h % ...) · head_stride
  /// Pairs are neighbours (2i, 2i + 1), and come out as (i, i + dim / 2): what multi-head latent
  /// attention does. Otherwise they are (i, i + dim / 2) before and after.
  bool interleaved = false;
  bool backward = false;  // the other way round
  const float* cosine = nullptr;
  const float* sine = nullptr;
  Array x;
};

}  // namespace ferry::kernels
