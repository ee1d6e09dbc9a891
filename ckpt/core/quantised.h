// Tensors whose elements lie in others: codes, with the scales of their blocks.
//
// An element is (code - zero point) x scale, in fp32, and is rounded once more to what it is read
// as. The scale is that of the element's block, times (or over) one of the whole tensor where there
// are two levels. Codes are elements of 8 bits, or several to an element of whole bytes, the first
// in the lowest bits, along the last axis.
//
// Source: OCP Microscaling Formats 1.0; DeepSeek-V3 inference/kernel.py; compressed-tensors
// compressors/ and quantization/lifecycle/forward_helpers.py (_dequantize); ModelOpt
// quantization/qtensor/nvfp4_tensor.py; transformers integrations/mxfp4.py.
#pragma once

#include <optional>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// What a code is.
enum class Code : uint8_t {
  element,  // an element of a dtype of one byte: an 8-bit float, or i8
  u8,       // a byte without a sign
  e2m1,     // a float of 4 bits
  u4,       // 4 bits without a sign
};

/// True of types whose elements are exponents of two with the bias 127; 255 is no number.
bool are_exponents(DType scales) noexcept;

/// Codes in a byte.
int64_t codes_per_byte(Code code) noexcept;

struct Quantised {
  Code code = Code::element;
  Entry codes;   // of the tensor's shape but for the last axis, where several are in an element
  Entry scales;  // one element a block: floating-point, or exponents of two (are_exponents)
  Dims block;    // extents of a block, one an axis of the codes; the last may be cut
  /// A second scale, one an element of the leading axes that it has, or one for all. Scales are
  /// multiplied by it, or divided where it `divides`.
  std::optional<Entry> global = {};
  bool divides = false;
  /// One a block: i8, or packed like the codes in i32 along the axis before the last. Without:
  /// `zero` for all.
  std::optional<Entry> zeros = {};
  float zero = 0;
  /// The codes' last two axes are the tensor's in the other order (gpt-oss's experts).
  bool transposed = false;

  /// Codes in an element of `codes`.
  int64_t codes_per_element() const noexcept;
  /// A shape or coordinates of the tensor as those of its codes, and back.
  Dims in_codes(Dims dims) const;
};

/// How many blocks of `block` elements `extent` elements are; the last may be cut.
constexpr int64_t blocks_in(int64_t extent, int64_t block) noexcept {
  return extent / block + (extent % block != 0);
}

/// How many blocks a shape has along each axis; the last may be cut. `block` is of its rank, and
/// all its extents are positive.
Dims block_grid(const Dims& shape, const Dims& block);

/// The blocks, counted along each axis, that hold the elements of a box.
Box blocks_of(const Box& box, const Dims& block);

/// The box of an entry that has an element for each of `grid`, where the shapes may differ by axes
/// of one element, of which either may have more.
Box in_shape(const Dims& shape, const Box& box, const Dims& grid);

/// mismatch, naming tensors and shapes, where the parts of a quantised entry do not fit it or each
/// other.
void check_quantised(const Entry& entry);

/// Calls use(entry) with each part of a quantised tensor.
template <typename Form, typename Use>
void for_each_part(Form& form, const Use& use) {
  use(form.codes);
  use(form.scales);
  if (form.global) use(*form.global);
  if (form.zeros) use(*form.zeros);
}

/// Calls use(entry) with the entries that hold what an entry is made of: itself, or its parts.
template <typename Use>
void for_each_stored(const Entry& entry, const Use& use) {
  if (entry.quantised) {
    for_each_part(*entry.quantised, use);
  } else {
    use(entry);
  }
}

}  // namespace ferry
