#include "ckpt/engine/transfers/dequantise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxScaleBytes = uint64_t{64} << 20;  // of one tensor
constexpr size_t kMaxKeptValues = size_t{4} << 20;       // of all that are kept

constexpr int64_t kCodes = 256;
constexpr int64_t kMaxResultBytes = 8;

// The result for every byte that an element can be.
class Table {
 public:
  Table(DType in_dtype, float scale, DType out_dtype)
      : bytes_(static_cast<size_t>(size_bytes(out_dtype))) {
    for (int64_t code = 0; code < kCodes; ++code) {
      const auto byte = static_cast<std::byte>(code);
      const float value = static_cast<float>(load_as_double(&byte, in_dtype)) * scale;
      convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32, results_.data() + code * 8,
              0, out_dtype, 1);
    }
  }

  void look_up(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
               int64_t count) const {
    switch (bytes_) {
      case 2:
        return look_up<2>(in, in_stride, out, out_stride, count);
      case 4:
        return look_up<4>(in, in_stride, out, out_stride, count);
      case 8:
        return look_up<8>(in, in_stride, out, out_stride, count);
      default:
        return look_up<1>(in, in_stride, out, out_stride, count);
    }
  }

 private:
  template <size_t Bytes>
  void look_up(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
               int64_t count) const {
    for (int64_t i = 0; i < count; ++i, in += in_stride, out += out_stride) {
      std::memcpy(out, results_.data() + std::to_integer<size_t>(*in) * kMaxResultBytes, Bytes);
    }
  }

  size_t bytes_;
  std::array<std::byte, kCodes * kMaxResultBytes> results_{};
};

void walk(const Table& table, const std::byte* in, std::byte* out,
          const std::vector<StridedLoop>& loops, size_t level) {
  if (loops.empty()) return table.look_up(in, 0, out, 0, 1);
  const StridedLoop& loop = loops[level];
  if (level + 1 == loops.size()) {
    return table.look_up(in, loop.in_stride, out, loop.out_stride, loop.count);
  }
  for (int64_t i = 0; i < loop.count; ++i) {
    walk(table, in + i * loop.in_stride, out + i * loop.out_stride, loops, level + 1);
  }
}

}  // namespace

std::shared_ptr<const std::vector<float>> ScaleReader::read(uint32_t position) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [entry, values] : kept_) {
      if (entry == position) return values;
    }
  }
  const Entry& entry = catalog_.entries.at(position);
  const std::string bytes = read_tensor(catalog_, entry, kMaxScaleBytes);
  const auto count = static_cast<size_t>(entry.elements());
  auto values = std::make_shared<std::vector<float>>(count);
  convert(reinterpret_cast<const std::byte*>(bytes.data()), size_bytes(entry.dtype), entry.dtype,
          reinterpret_cast<std::byte*>(values->data()), sizeof(float), DType::f32,
          static_cast<int64_t>(count));
  const std::lock_guard lock(mutex_);
  while (!kept_.empty() && kept_values_ + count > kMaxKeptValues) {
    kept_values_ -= kept_.front().second->size();
    kept_.erase(kept_.begin());
  }
  kept_values_ += count;
  kept_.emplace_back(position, values);
  return values;
}

std::vector<std::pair<Move, float>> cut_by_block(const Move& move, const BlockScales& scales,
                                                 const std::vector<float>& values,
                                                 const Dims& shape) {
  const size_t rank = shape.size();
  const Box bounds = input_bounds(move, rank);
  Dims first(rank), last(rank), counts(rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    if (bounds.size[axis] == 0) return {};
    const int64_t block = scales.block[axis];
    first[axis] = bounds.offset[axis] / block;
    last[axis] = (bounds.offset[axis] + bounds.size[axis] - 1) / block;
    counts[axis] = shape[axis] / block + (shape[axis] % block != 0);
  }
  const Dims strides = row_major_strides(counts);
  std::vector<std::pair<Move, float>> parts;
  for (Dims at = first;;) {
    Box box{Dims(rank), Dims(rank)};
    int64_t position = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const int64_t block = scales.block[axis], begin = at[axis] * block;
      box.offset[axis] = begin;
      box.size[axis] = std::min(block, shape[axis] - begin);
      position += at[axis] * strides[axis];
    }
    const float scale = values.at(static_cast<size_t>(position));
    for (Move& part : clip_input(move, box)) parts.emplace_back(std::move(part), scale);
    size_t axis = rank;
    while (axis > 0 && at[axis - 1] == last[axis - 1]) {
      --axis;
      at[axis] = first[axis];
    }
    if (axis == 0) return parts;
    ++at[axis - 1];
  }
}

void dequantise(const std::byte* in, DType in_dtype, float scale, std::byte* out, DType out_dtype,
                const std::vector<StridedLoop>& loops) {
  const bool nothing = std::any_of(loops.begin(), loops.end(),
                                   [](const StridedLoop& loop) { return loop.count <= 0; });
  if (!nothing) walk(Table(in_dtype, scale, out_dtype), in, out, loops, 0);
}

}  // namespace ferry
