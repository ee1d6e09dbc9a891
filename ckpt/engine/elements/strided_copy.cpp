#include "ckpt/engine/elements/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ckpt/base/cast.h"
#include "ckpt/engine/elements/transpose.h"

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

// Source elements that are converted at once on their way to a transposition.
constexpr int64_t kConvertRows = 64, kConvertColumns = 128, kMaxElementBytes = 8;

class Copier {
 public:
  Copier(DType in_dtype, DType out_dtype, std::vector<StridedLoop> loops)
      : in_dtype_(in_dtype),
        out_dtype_(out_dtype),
        in_bytes_(size_bytes(in_dtype)),
        out_bytes_(size_bytes(out_dtype)),
        loops_(std::move(loops)) {
    normalise(loops_);
    if (loops_.empty()) loops_.push_back({1, in_bytes_, out_bytes_});
    if (loops_.back().out_stride != out_bytes_ || loops_.back().in_stride == in_bytes_) return;
    // A transposition has another loop that walks along the source's rows; it goes next to the
    // innermost, which walks along the target's.
    const auto along = std::find_if(loops_.begin(), loops_.end() - 1, [&](const StridedLoop& loop) {
      return loop.in_stride == in_bytes_;
    });
    if (along == loops_.end() - 1) return;
    std::rotate(along, along + 1, loops_.end() - 1);
    is_transposition_ = true;
  }

  void copy(const std::byte* in, std::byte* out) const { step(0, in, out); }

 private:
  void step(size_t level, const std::byte* in, std::byte* out) const {
    const size_t left = loops_.size() - level;
    if (left == 1) return move_row(in, out);
    if (left == 2 && is_transposition_) return move_plane(in, out);
    const StridedLoop& loop = loops_[level];
    for (int64_t i = 0; i < loop.count; ++i) {
      step(level + 1, in + i * loop.in_stride, out + i * loop.out_stride);
    }
  }

  void move_row(const std::byte* in, std::byte* out) const {
    const StridedLoop& loop = loops_.back();
    if (in_dtype_ != out_dtype_) {
      return convert(in, loop.in_stride, in_dtype_, out, loop.out_stride, out_dtype_, loop.count);
    }
    if (loop.in_stride == in_bytes_ && loop.out_stride == out_bytes_) {
      std::memcpy(out, in, static_cast<size_t>(loop.count * out_bytes_));
      return;
    }
    switch (out_bytes_) {
      case 1:
        return move_elements<1>(in, out, loop);
      case 2:
        return move_elements<2>(in, out, loop);
      case 4:
        return move_elements<4>(in, out, loop);
      case 8:
        return move_elements<8>(in, out, loop);
      default:
        return move_elements<16>(in, out, loop);
    }
  }

  template <size_t Bytes>
  static void move_elements(const std::byte* in, std::byte* out, const StridedLoop& loop) {
    for (int64_t i = 0; i < loop.count; ++i, in += loop.in_stride, out += loop.out_stride) {
      std::memcpy(out, in, Bytes);
    }
  }

  void move_plane(const std::byte* in, std::byte* out) const {
    const StridedLoop &columns = loops_[loops_.size() - 2], &rows = loops_.back();
    if (in_dtype_ == out_dtype_) {
      return transpose(in, rows.in_stride, out, columns.out_stride, {rows.count, columns.count},
                       out_bytes_);
    }
    alignas(64) std::byte block[kConvertRows * kConvertColumns * kMaxElementBytes];
    const int64_t pitch = kConvertColumns * out_bytes_;
    for (int64_t r0 = 0; r0 < rows.count; r0 += kConvertRows) {
      const int64_t height = std::min(kConvertRows, rows.count - r0);
      for (int64_t c0 = 0; c0 < columns.count; c0 += kConvertColumns) {
        const int64_t width = std::min(kConvertColumns, columns.count - c0);
        for (int64_t r = 0; r < height; ++r) {
          convert(in + (r0 + r) * rows.in_stride + c0 * in_bytes_, in_bytes_, in_dtype_,
                  block + r * pitch, out_bytes_, out_dtype_, width);
        }
        transpose(block, pitch, out + c0 * columns.out_stride + r0 * out_bytes_, columns.out_stride,
                  {height, width}, out_bytes_);
      }
    }
  }

  DType in_dtype_, out_dtype_;
  int64_t in_bytes_, out_bytes_;
  std::vector<StridedLoop> loops_;  // at least one
  bool is_transposition_ = false;   // of the last two loops
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

namespace {

void add_row(const std::byte* in, DType in_dtype, double addend, std::byte* out, DType out_dtype,
             const StridedLoop& loop) {
  std::array<double, 256> values;
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  constexpr auto kMost = static_cast<int64_t>(values.size());
  for (int64_t first = 0; first < loop.count; first += kMost) {
    const int64_t count = std::min(kMost, loop.count - first);
    convert(in + first * loop.in_stride, loop.in_stride, in_dtype, bytes, sizeof(double),
            DType::f64, count);
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] += addend;
    convert(bytes, sizeof(double), DType::f64, out + first * loop.out_stride, loop.out_stride,
            out_dtype, count);
  }
}

}  // namespace

void strided_add(const std::byte* in, DType in_dtype, double addend, std::byte* out,
                 DType out_dtype, const std::vector<StridedLoop>& loops) {
  if (loops.size() <= 1) {
    const StridedLoop one{1, 0, 0};
    return add_row(in, in_dtype, addend, out, out_dtype, loops.empty() ? one : loops.front());
  }
  const std::vector<StridedLoop> inner(loops.begin() + 1, loops.end());
  for (int64_t i = 0; i < loops.front().count; ++i) {
    strided_add(in + i * loops.front().in_stride, in_dtype, addend,
                out + i * loops.front().out_stride, out_dtype, inner);
  }
}

namespace {

constexpr std::byte kSign{0x80};

void step(std::byte* out, int64_t first, int64_t second, const std::vector<StridedLoop>& loops,
          size_t level) {
  if (level == loops.size()) {
    if (first >= 0) out[first] ^= kSign;
    if (second >= 0) out[second] ^= kSign;
    return;
  }
  const StridedLoop& loop = loops[level];
  for (int64_t i = 0; i < loop.count; ++i) {
    step(out + i * loop.out_stride, first, second, loops, level + 1);
  }
}

}  // namespace

void flip_signs(std::byte* out, int64_t element_bytes, SignFlips flips,
                const std::vector<StridedLoop>& loops) {
  // Little-endian: the sign is in a part's last byte.
  const int64_t first = flips.first ? flips.part_bytes - 1 : -1;
  const int64_t second = flips.second ? element_bytes - 1 : -1;
  if (first >= 0 || second >= 0) step(out, first, second, loops, 0);
}

}  // namespace ferry
