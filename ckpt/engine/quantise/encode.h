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

/// Where the codes of rows go, one a byte, and what belongs to them.
struct EncodedRows {
  uint8_t* codes = nullptr;
  int64_t pitch = 0;           // codes from one row to the next
  uint32_t* scales = nullptr;  // one a block, as stored: bits of an fp32 number, a byte, or 16 bits
  uint8_t* zeros = nullptr;    // the same: zero points from 0 to 15; of int4_zeros alone
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
  // What values of a block are divided by, or multiplied with.
  struct Scale {
    uint32_t stored = 0;
    float factor = 1;
    float zero = 0;  // is added then
  };

  template <typename Use>
  void each_piece(const ValueRows& rows, int64_t row, int64_t width, const Use& use);
  void find_scales(const ValueRows& rows, int64_t width, size_t blocks);
  void set(size_t block, const Scale& scale);
  Scale scale_of_fp8(float largest) const;
  Scale power_of_two(float largest) const;
  void find_mx();
  void find_nvfp4();
  Scale scale_of_int4_zeros(float least, float most) const;
  Scale stored_as_int4(float scale, float zero) const;
  float rounded(float value) const;  // to the values' type

  QuantiseRule rule_;
  DType dtype_;
  bool multiplies_;
  float least_;  // the smallest amax of an fp8 block
  float global_ = 1;
  std::vector<float> exact_, quotients_;  // of a piece of a row
  // One a block of a row:
  std::vector<int32_t> largest_;
  std::vector<uint32_t> stored_;
  std::vector<float> factors_, zeros_, most_;
  std::vector<uint8_t> codes_;
};

/// The greatest magnitude of values of bf16, fp16 or fp32; a NaN's is greater than all others.
float largest_magnitude(const std::byte* values, DType dtype, int64_t count);

/// Packs codes of 4 bits, an even number of them, two a byte.
void pack_pairs(const uint8_t* codes, int64_t count, std::byte* out);

}  // namespace ferry
