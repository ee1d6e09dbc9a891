// Values in memory to codes and scales.
//
// Each rule is that of a program, bit for bit, so that a model is the same whoever quantised it.
// Numbers are fp32 unless a rule says otherwise; codes are rounded to nearest even.
//
//   fp8            s = amax / 448; x / s. A block of zeros has the amax 1e-12.
//                  slime tools/convert_hf_to_fp8.py, DeepSeek-V3 inference/kernel.py; of a whole
//                  tensor as compressed-tensors' float-quantized.
//   fp8_exponents  s = 2^ceil(log2(1 / (1 / amax x 448))), 2^-126 at least, 1 for 0; x / s,
//                  saturated.
//                  transformers integrations/finegrained_fp8.py (Fp8Quantize).
//   mxfp8          s = 2^ceil(log2(amax / 448)); x / s, saturated.
//                  ModelOpt quantization/qtensor/mxfp8_tensor.py.
//   mxfp4          s = 2^(e - 2), with e the exponent of amax, one more from 1.75 x 2^e on.
//                  compressed-tensors quantization/utils/mxfp_utils.py.
//   mxfp4_up       s = 2^ceil(log2(amax / 6)). triton_kernels numerics_details/mxfp.py
//                  (downcast_to_mxfp_torch), which transformers calls for gpt-oss.
//   nvfp4          g = amax of all / (6 x 448); s = e4m3(amax / (6 g)), 2^-9 at least; x / (s g).
//                  ModelOpt quantization/qtensor/nvfp4_tensor.py.
//   nvfp4_divided  g = (448 x 6) / amax of all; s = e4m3(g (amax / 6)), 1/8 for 0; x / (s / g).
//   Both
//                  quotients by an amax are rounded to the values' type.
//                  compressed-tensors quantization/utils/helpers.py, lifecycle/forward_helpers.py.
//   int4           s = amax / 7.5, the type's epsilon for 0; x / s, both rounded to the values'
//   type. int4_zeros     s = (max - min) / 15; z = -8 - min / s; x / s + z, each rounded to that
//   type.
//                  compressed-tensors, as above, and compressors/pack_quantized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// Rows of values of the type that they are quantised from.
struct ValueRows {
  const std::byte* first = nullptr;
  int64_t pitch = 0;  // values from one row to the next
  int64_t rows = 0, columns = 0;
};

/// Where the codes of rows go, as they are stored, and what belongs to them.
struct EncodedRows {
  std::byte* codes = nullptr;   // those of 4 bits two a byte
  int64_t pitch = 0;            // bytes from one row to the next
  std::byte* scales = nullptr;  // one a block, of the type that parts_of() names
  uint8_t* zeros = nullptr;     // the same: zero points from 0 to 15; of int4_zeros alone
};

/// Quantises blocks. Not for several threads.
class Encoder {
 public:
  /// `largest`: the greatest magnitude of all that has one second scale, or one scale in all.
  Encoder(const Quantise& how, float largest);

  /// Rows that blocks of `width` columns span from the first to the last.
  void encode(const ValueRows& rows, int64_t width, const EncodedRows& into);

  /// What the second scale is, or the only one of a tensor.
  float global() const noexcept { return global_; }

 private:
  template <typename Use>
  void each_piece(const ValueRows& rows, int64_t row, int64_t width, const Use& use);
  void find_largest(const ValueRows& rows, int64_t width, size_t blocks);
  void find_scales(const ValueRows& rows, int64_t width, size_t blocks);
  void find_fp8();
  void find_exponents();
  void find_mx();
  void find_nvfp4();
  void find_int4();
  void find_int4_zeros(const ValueRows& rows, int64_t width);
  void store_int4(size_t block, float scale);
  float rounded(float value) const;  // to the values' type

  QuantiseRule rule_;
  DType dtype_;
  bool multiplies_;
  int64_t scale_bytes_;
  float least_;  // the smallest amax of an fp8 block
  float global_ = 1;
  std::vector<float> exact_;  // of a piece of a row
  // One a block of a row. Values are divided by their block's factor, or multiplied with it, and
  // its zero is added then.
  std::vector<float> largest_, factors_, zeros_;
  std::vector<int32_t> bits_;     // of the largest magnitudes, as the values' type has them
  std::vector<uint32_t> stored_;  // scales: the bits of their type
  std::vector<std::byte> codes_;  // scales that are e4m3 numbers
};

/// The greatest magnitude of values of bf16, fp16 or fp32; a NaN's is greater than all others.
float largest_magnitude(const std::byte* values, DType dtype, int64_t count);

}  // namespace ferry
