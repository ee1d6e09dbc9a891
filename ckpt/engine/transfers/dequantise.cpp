#include "ckpt/engine/transfers/dequantise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr int64_t kMostValuesOfWhole = 256 << 10;    // of a tensor that is read whole
constexpr size_t kMostKeptValues = size_t{1} << 20;  // of all that are kept

constexpr int64_t kCodes = 256;
constexpr int64_t kMaxResultBytes = 8;
// From so many elements of a block on, a table of all results is less work than they are.
constexpr int64_t kLeastForTable = kCodes;

void dequantise_one(std::byte code, DType in_dtype, float scale, std::byte* out, DType out_dtype) {
  const float value = static_cast<float>(load_as_double(&code, in_dtype)) * scale;
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f32, out, 0, out_dtype, 1);
}

// The result for every byte that an element can be.
class Table {
 public:
  Table(DType in_dtype, float scale, DType out_dtype)
      : bytes_(static_cast<size_t>(size_bytes(out_dtype))) {
    for (int64_t code = 0; code < kCodes; ++code) {
      dequantise_one(static_cast<std::byte>(code), in_dtype, scale,
                     results_.data() + code * kMaxResultBytes, out_dtype);
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

// What a table does, for the few elements of a small block.
struct OneByOne {
  DType in_dtype;
  float scale;
  DType out_dtype;

  void look_up(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
               int64_t count) const {
    for (int64_t i = 0; i < count; ++i, in += in_stride, out += out_stride) {
      dequantise_one(*in, in_dtype, scale, out, out_dtype);
    }
  }
};

template <typename Results>
void walk(const Results& results, const std::byte* in, std::byte* out,
          const std::vector<StridedLoop>& loops, size_t level) {
  if (loops.empty()) return results.look_up(in, 0, out, 0, 1);
  const StridedLoop& loop = loops[level];
  if (level + 1 == loops.size()) {
    return results.look_up(in, loop.in_stride, out, loop.out_stride, loop.count);
  }
  for (int64_t i = 0; i < loop.count; ++i) {
    walk(results, in + i * loop.in_stride, out + i * loop.out_stride, loops, level + 1);
  }
}

// A box of a grid in a shape that differs from it by axes of one element.
Box with_shape_of(const Dims& shape, const Box& box, const Dims& grid) {
  Box result{Dims(shape.size(), 0), Dims(shape.size(), 1)};
  size_t from = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    while (from < grid.size() && grid[from] == 1) ++from;
    result.offset[axis] = box.offset.at(from);
    result.size[axis] = box.size.at(from);
    ++from;
  }
  return result;
}

}  // namespace

BoxReader& ScaleReader::reader(uint32_t position) {
  const std::lock_guard lock(mutex_);
  auto& reader = readers_[position];
  if (!reader) reader = std::make_unique<BoxReader>(catalog_, position);
  return *reader;
}

ScaleBox ScaleReader::read(uint32_t position, const Box& blocks, const Dims& grid) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [entry, scales] : kept_) {
      if (entry == position) return scales;
    }
  }
  const Entry& entry = catalog_.entries.at(position);
  const auto read_box = [&](BoxReader& from, const Box& box) {
    const Box stored = with_shape_of(entry.shape, box, grid);
    return ScaleBox{box, std::make_shared<const std::vector<float>>(from.read(stored))};
  };
  if (entry.elements() > kMostValuesOfWhole) return read_box(reader(position), blocks);
  BoxReader of_this_time(catalog_, position);
  ScaleBox scales = read_box(of_this_time, Box::whole(grid));
  const size_t count = scales.values->size();
  const std::lock_guard lock(mutex_);
  while (!kept_.empty() && kept_values_ + count > kMostKeptValues) {
    kept_values_ -= kept_.front().second.values->size();
    kept_.erase(kept_.begin());
  }
  kept_values_ += count;
  kept_.emplace_back(position, scales);
  return scales;
}

Box blocks_of(const Move& move, const Dims& block) {
  Box blocks = input_bounds(move, block.size());
  for (size_t axis = 0; axis < block.size(); ++axis) {
    if (blocks.size[axis] == 0) continue;
    const int64_t last = blocks.offset[axis] + blocks.size[axis] - 1;
    blocks.offset[axis] /= block[axis];
    blocks.size[axis] = last / block[axis] - blocks.offset[axis] + 1;
  }
  return blocks;
}

std::vector<std::pair<Move, float>> cut_by_block(const Move& move, const Dims& block,
                                                 const ScaleBox& scales, const Dims& shape) {
  const size_t rank = shape.size();
  const Box blocks = blocks_of(move, block);
  if (std::find(blocks.size.begin(), blocks.size.end(), 0) != blocks.size.end()) return {};
  const Dims strides = row_major_strides(scales.blocks.size);
  std::vector<std::pair<Move, float>> parts;
  for (Dims at = blocks.offset;;) {
    Box box{Dims(rank), Dims(rank)};
    int64_t position = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const int64_t begin = at[axis] * block[axis];
      box.offset[axis] = begin;
      box.size[axis] = std::min(block[axis], shape[axis] - begin);
      position += (at[axis] - scales.blocks.offset[axis]) * strides[axis];
    }
    const float scale = scales.values->at(static_cast<size_t>(position));
    for (Move& part : clip_input(move, box)) parts.emplace_back(std::move(part), scale);
    size_t axis = rank;
    while (axis > 0 && at[axis - 1] == blocks.offset[axis - 1] + blocks.size[axis - 1] - 1) {
      --axis;
      at[axis] = blocks.offset[axis];
    }
    if (axis == 0) return parts;
    ++at[axis - 1];
  }
}

void dequantise(const std::byte* in, DType in_dtype, float scale, std::byte* out, DType out_dtype,
                const std::vector<StridedLoop>& loops) {
  int64_t elements = 1;
  for (const StridedLoop& loop : loops) elements *= std::max<int64_t>(0, loop.count);
  if (elements == 0) return;
  if (elements < kLeastForTable) {
    walk(OneByOne{in_dtype, scale, out_dtype}, in, out, loops, 0);
  } else {
    walk(Table(in_dtype, scale, out_dtype), in, out, loops, 0);
  }
}

}  // namespace ferry
