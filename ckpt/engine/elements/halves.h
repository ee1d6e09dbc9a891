// fp32 elements in two halves: a bf16 tensor and 16-bit remainders, as optimizers keep them that
// have no room for an fp32 copy of every parameter.
//
// The element's bits are those of the bf16 element, as the upper 16, plus the remainder as a signed
// number. So the bf16 element is the fp32 one rounded to nearest, where halves go up in magnitude.
//
// Source: Transformer Engine, common/multi_tensor/adam.cu (AdamFunctorMasterParamRemainder).
#pragma once

#include <vector>

#include "ckpt/engine/elements/strided_copy.h"

namespace ferry {

/// For every index of the loops: the bits of the fp32 element at out[...] += in[...], a remainder:
/// i16, or f32 with a whole number. False when a number of the latter is not a remainder; others
/// may have been added by then.
bool add_remainders(const std::byte* in, DType in_dtype, std::byte* out,
                    const std::vector<StridedLoop>& loops);

/// For every index of the loops: out[...], an i16, = the remainder in[...], as above.
bool narrow_remainders(const std::byte* in, DType in_dtype, std::byte* out,
                       const std::vector<StridedLoop>& loops);

/// For every index of the loops: out[...] = the upper half of in[...], as bf16, or the lower one,
/// as i16. `in` is floating-point and stands for its value as fp32.
void take_upper(const std::byte* in, DType in_dtype, std::byte* out,
                const std::vector<StridedLoop>& loops);
void take_lower(const std::byte* in, DType in_dtype, std::byte* out,
                const std::vector<StridedLoop>& loops);

}  // namespace ferry
