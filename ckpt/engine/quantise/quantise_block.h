// One block of a tensor to 8-bit floats with a scale.
//
// As the scripts that make such models do it: the scale is the largest magnitude over the largest
// finite value of the 8-bit type, in fp32; each element is divided by it in fp32 and rounded to
// nearest even. A block of zeros gets the scale of a tiny magnitude, so that nothing is divided by
// zero; one with a NaN or an infinity gets that as its scale.
//
// Source: slime tools/convert_hf_to_fp8.py (block_fp8), DeepSeek-V3 inference/kernel.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckpt/base/dtype.h"

namespace ferry {

/// Rows of elements at a distance of `pitch` bytes.
struct BlockRows {
  const std::byte* first = nullptr;
  int64_t pitch = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// Quantises blocks to float8_e4m3fn. Holds a block's values meanwhile. Not for several threads.
class BlockQuantiser {
 public:
  /// `values`: what the elements are: bf16, fp16 or fp32.
  explicit BlockQuantiser(DType values);

  /// Writes the block's bytes to `out`, rows at `out_pitch`, and returns its scale.
  float quantise(const BlockRows& block, std::byte* out, int64_t out_pitch);

 private:
  DType dtype_;
  uint32_t least_bits_;  // of the magnitude that a block has at least
  std::vector<float> values_;
};

}  // namespace ferry
