// What a transposition is built from, for one kind of processor: transpose_portable.cpp or
// transpose_sse2.cpp, whichever the build chooses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry {

/// Bytes of a row that a kernel transposes at once.
inline constexpr int64_t kVectorBytes = 16;

/// With n = kVectorBytes / element_bytes: `blocks` blocks of n x n elements, one below the other in
/// `in`, become n rows of blocks x n elements. Elements have 1, 2, 4 or 8 bytes.
void transpose_panel(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
                     int64_t blocks, int64_t element_bytes);

/// Copies whole 64-byte lines, both sides aligned to them, past the cache.
void stream_lines(const std::byte* in, std::byte* out, int64_t bytes);

/// Comes after the last stream_lines() of a transposition: what was streamed is visible to all.
void finish_streams();

}  // namespace ferry
