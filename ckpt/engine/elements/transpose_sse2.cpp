// For x86-64, all of which has SSE2.
#include <emmintrin.h>

#include "ckpt/engine/elements/transpose_kernel.h"

namespace ferry {
namespace {

template <int64_t Bytes>
__m128i interleave_low(__m128i a, __m128i b) {
  if constexpr (Bytes == 1) return _mm_unpacklo_epi8(a, b);
  if constexpr (Bytes == 2) return _mm_unpacklo_epi16(a, b);
  if constexpr (Bytes == 4) return _mm_unpacklo_epi32(a, b);
  return _mm_unpacklo_epi64(a, b);
}

template <int64_t Bytes>
__m128i interleave_high(__m128i a, __m128i b) {
  if constexpr (Bytes == 1) return _mm_unpackhi_epi8(a, b);
  if constexpr (Bytes == 2) return _mm_unpackhi_epi16(a, b);
  if constexpr (Bytes == 4) return _mm_unpackhi_epi32(a, b);
  return _mm_unpackhi_epi64(a, b);
}

// Interleaving the first half of n x n elements with the second turns their index, in bits, by one
// place; log2(n) times exchange row and column. Loops are unrolled so that all stays in registers.
template <int64_t Bytes, int64_t Done = 1>
void turn(__m128i* rows) {
  constexpr int64_t kSide = kVectorBytes / Bytes;
  if constexpr (Done < kSide) {
    __m128i turned[kSide];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSide / 2; ++i) {
      turned[2 * i] = interleave_low<Bytes>(rows[i], rows[i + kSide / 2]);
      turned[2 * i + 1] = interleave_high<Bytes>(rows[i], rows[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSide; ++i) rows[i] = turned[i];
    turn<Bytes, 2 * Done>(rows);
  }
}

template <int64_t Bytes>
void panel(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
           int64_t blocks) {
  constexpr int64_t kSide = kVectorBytes / Bytes;
  for (int64_t block = 0; block < blocks; ++block) {
    __m128i rows[kSide];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSide; ++i) {
      rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * in_pitch));
    }
    turn<Bytes>(rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSide; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * out_pitch), rows[i]);
    }
    in += kSide * in_pitch;
    out += kVectorBytes;
  }
}

}  // namespace

void transpose_panel(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
                     int64_t blocks, int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return panel<1>(in, in_pitch, out, out_pitch, blocks);
    case 2:
      return panel<2>(in, in_pitch, out, out_pitch, blocks);
    case 4:
      return panel<4>(in, in_pitch, out, out_pitch, blocks);
    default:
      return panel<8>(in, in_pitch, out, out_pitch, blocks);
  }
}

void stream_lines(const std::byte* in, std::byte* out, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kVectorBytes) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(in + at)));
  }
}

void finish_streams() { _mm_sfence(); }

}  // namespace ferry
