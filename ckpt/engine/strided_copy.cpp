#include "ckpt/engine/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Sorts by target stride, outermost first, and joins loops that continue each other on both sides.
void normalise(std::vector<StridedLoop>& loops) {
  std::erase_if(loops, [](const StridedLoop& loop) { return loop.count == 1; });
  std::stable_sort(loops.begin(), loops.end(), [](const StridedLoop& a, const StridedLoop& b) {
    return a.out_stride > b.out_stride;
  });
  for (size_t i = loops.size(); i-- > 1;) {
    StridedLoop &outer = loops[i - 1], &inner = loops[i];
    if (outer.in_stride != inner.count * inner.in_stride) continue;
    if (outer.out_stride != inner.count * inner.out_stride) continue;
    outer = {outer.count * inner.count, inner.in_stride, inner.out_stride};
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// A transposition, by blocks that are read along the source's rows and written along the target's:
// walking either side by its large stride would miss the cache at every element. A block is wide on
// the target's side because writes to many pages at once cost most.
template <size_t Bytes>
void transpose_plane(const std::byte* in, std::byte* out, const StridedLoop& rows,
                     const StridedLoop& columns) {
  struct Element {
    std::byte bytes[Bytes];
  };
  constexpr int64_t kHeight = 64, kWidth = 1024 / Bytes, kStrip = 8;
  constexpr int64_t kPadding = 8;  // padded rows fall into different cache sets
  Element block[kWidth][kHeight + kPadding];
  Element strip[kStrip][kWidth];
  for (int64_t r0 = 0; r0 < rows.count; r0 += kHeight) {
    const int64_t height = std::min(kHeight, rows.count - r0);
    for (int64_t c0 = 0; c0 < columns.count; c0 += kWidth) {
      const int64_t width = std::min(kWidth, columns.count - c0);
      for (int64_t c = 0; c < width; ++c) {
        std::memcpy(block[c], in + (c0 + c) * columns.in_stride + r0 * rows.in_stride,
                    height * Bytes);
      }
      for (int64_t r = 0; r < height; r += kStrip) {
        for (int64_t c = 0; c < width; ++c) {
          for (int64_t k = 0; k < kStrip; ++k) strip[k][c] = block[c][r + k];
        }
        for (int64_t k = 0; k < std::min(kStrip, height - r); ++k) {
          std::memcpy(out + (r0 + r + k) * rows.out_stride + c0 * columns.out_stride, strip[k],
                      width * Bytes);
        }
      }
    }
  }
}

template <size_t Bytes>
void copy_plane(const std::byte* in, std::byte* out, const StridedLoop& rows,
                const StridedLoop& columns) {
  if (rows.in_stride == Bytes && columns.out_stride == Bytes) {
    return transpose_plane<Bytes>(in, out, rows, columns);
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const std::byte* from = in + r * rows.in_stride;
    std::byte* to = out + r * rows.out_stride;
    for (int64_t c = 0; c < columns.count;
         ++c, from += columns.in_stride, to += columns.out_stride) {
      std::memcpy(to, from, Bytes);
    }
  }
}

void copy_plane(const std::byte* in, std::byte* out, int64_t bytes, const StridedLoop& rows,
                const StridedLoop& columns) {
  switch (bytes) {
    case 1:
      return copy_plane<1>(in, out, rows, columns);
    case 2:
      return copy_plane<2>(in, out, rows, columns);
    case 4:
      return copy_plane<4>(in, out, rows, columns);
    case 8:
      return copy_plane<8>(in, out, rows, columns);
    default:
      return copy_plane<16>(in, out, rows, columns);
  }
}

class Copier {
 public:
  Copier(DType in_dtype, DType out_dtype, std::vector<StridedLoop> loops)
      : in_dtype_(in_dtype), out_dtype_(out_dtype), loops_(std::move(loops)) {
    normalise(loops_);
    const int64_t bytes = size_bytes(out_dtype_);
    run_bytes_ = bytes;
    const bool contiguous =
        !loops_.empty() && loops_.back().in_stride == bytes && loops_.back().out_stride == bytes;
    if (in_dtype_ == out_dtype_ && contiguous) {
      run_bytes_ = loops_.back().count * bytes;
      loops_.pop_back();
    } else if (in_dtype_ == out_dtype_ && loops_.size() >= 2) {
      // A transposition: put the loop with the smallest source stride next to the innermost.
      const auto smallest = std::min_element(
          loops_.begin(), loops_.end() - 1,
          [](const StridedLoop& a, const StridedLoop& b) { return a.in_stride < b.in_stride; });
      std::rotate(smallest, smallest + 1, loops_.end() - 1);
    }
  }

  void copy(const std::byte* in, std::byte* out) { step(0, in, out); }

 private:
  void step(size_t level, const std::byte* in, std::byte* out) {
    const size_t left = loops_.size() - level;
    if (left == 0) return leaf(in, out);
    if (in_dtype_ != out_dtype_ && left == 1) {
      return convert(in, loops_[level].in_stride, in_dtype_, out, loops_[level].out_stride,
                     out_dtype_, loops_[level].count);
    }
    if (run_bytes_ == size_bytes(out_dtype_) && in_dtype_ == out_dtype_ && left <= 2) {
      const StridedLoop one{1, 0, 0};
      return copy_plane(in, out, run_bytes_, left == 2 ? loops_[level] : one, loops_.back());
    }
    const StridedLoop& loop = loops_[level];
    for (int64_t i = 0; i < loop.count; ++i) {
      step(level + 1, in + i * loop.in_stride, out + i * loop.out_stride);
    }
  }

  void leaf(const std::byte* in, std::byte* out) const {
    if (in_dtype_ == out_dtype_)
      std::memcpy(out, in, static_cast<size_t>(run_bytes_));
    else
      convert(in, 0, in_dtype_, out, 0, out_dtype_, 1);
  }

  DType in_dtype_, out_dtype_;
  std::vector<StridedLoop> loops_;
  int64_t run_bytes_;  // moved at once by the innermost step
};

void fill_zeros(std::byte* out, int64_t element_bytes, const std::vector<StridedLoop>& loops,
                size_t level) {
  if (level == loops.size()) {
    std::memset(out, 0, static_cast<size_t>(element_bytes));
    return;
  }
  const StridedLoop& loop = loops[level];
  if (level + 1 == loops.size() && loop.out_stride == element_bytes) {
    std::memset(out, 0, static_cast<size_t>(element_bytes * loop.count));
    return;
  }
  for (int64_t i = 0; i < loop.count; ++i)
    fill_zeros(out + i * loop.out_stride, element_bytes, loops, level + 1);
}

}  // namespace

void strided_copy(const std::byte* in, DType in_dtype, std::byte* out, DType out_dtype,
                  std::vector<StridedLoop> loops) {
  for (const StridedLoop& loop : loops) {
    if (loop.count <= 0) return;
  }
  if (in) {
    Copier(in_dtype, out_dtype, std::move(loops)).copy(in, out);
  } else {
    fill_zeros(out, size_bytes(out_dtype), loops, 0);
  }
}

}  // namespace ferry
