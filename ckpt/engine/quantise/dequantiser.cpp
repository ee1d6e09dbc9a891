#include "ckpt/engine/quantise/dequantiser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/engine/tiles/tile.h"

namespace ferry {
namespace {

constexpr int64_t kStripValues = 128 << 10;  // with their codes they stay in a core's cache
constexpr int64_t kMostCodes = 1 << 20;      // codes that are read for a strip
constexpr int64_t kWordZeros = 8;            // zero points in a word of 32 bits

bool is_over_rows(const Loop& loop, size_t rank) {
  return loop.in_axis + 1 < static_cast<int>(rank);
}

double elements_in(const Box& box) {
  double count = 1;
  for (const int64_t extent : box.size) count *= static_cast<double>(extent);
  return count;
}

// What an exponent of two with the bias 127 stands for; 255 is no number.
float power_of_two(uint8_t exponent) {
  if (exponent == 255) return std::bit_cast<float>(uint32_t{0x7fc00000});
  if (exponent == 0) return 0x1p-127F;
  return std::bit_cast<float>(uint32_t{exponent} << 23);
}

}  // namespace

// A box of codes in memory, with their scales.
class Dequantiser::Strip {
 public:
  Strip(Dequantiser& reader, const QuantisedMove& from, const Move& move)
      : form_(*from.entry->quantised),
        shape_(form_.in_codes(from.entry->shape)),
        rank_(shape_.size()),
        bounds_(input_bounds(move, rank_)),
        decoder_(*from.decoder) {
    read_codes(reader, from);
    const Dims grid = block_grid(shape_, form_.block);
    blocks_ = blocks_of(bounds_, form_.block);
    scales_ = reader.read_scales(*from.compiler, form_.scales,
                                 in_shape(form_.scales.shape, blocks_, grid));
    if (form_.zeros) zeros_ = reader.read_zeros(from, blocks_, grid);
    if (form_.global) scale_all(reader, from);
  }

  int64_t width() const { return bounds_.size.back(); }
  int64_t first_column() const { return bounds_.offset.back(); }

  // Values of the row at some coordinates, of which the last is not used.
  void decode(const Dims& row, DType dtype, std::byte* values) const {
    int64_t code_row = 0, block_row = 0;
    for (size_t axis = 0; axis + 1 < rank_; ++axis) {
      code_row = code_row * bounds_.size[axis] + row[axis] - bounds_.offset[axis];
      block_row =
          block_row * blocks_.size[axis] + row[axis] / form_.block[axis] - blocks_.offset[axis];
    }
    const int64_t first = first_column();
    const int64_t block = first / form_.block.back() - blocks_.offset.back();
    const int64_t at = block_row * blocks_.size.back() + block;
    RowScales scales;
    scales.scales = scales_.data() + at;
    scales.zeros = zeros_.empty() ? nullptr : zeros_.data() + at;
    scales.zero = form_.zero;
    scales.block = form_.block.back();
    scales.into = first % form_.block.back();
    decoder_.decode(codes_.data() + code_row * row_bytes_, first - first_code_, width(), scales,
                    dtype, values);
  }

 private:
  void read_codes(Dequantiser& reader, const QuantisedMove& from) {
    const int64_t packed = form_.codes_per_element();
    Box box = bounds_;
    box.offset.back() = bounds_.offset.back() / packed;
    const int64_t end = bounds_.offset.back() + bounds_.size.back();
    box.size.back() = (end + packed - 1) / packed - box.offset.back();
    first_code_ = box.offset.back() * packed;
    row_bytes_ = box.size.back() * size_bytes(form_.codes.dtype);
    codes_ = reader.read(*from.compiler, form_.codes, box, form_.codes.dtype, reader.codes_);
  }

  // The second scale of each block's place in the leading axes.
  void scale_all(Dequantiser& reader, const QuantisedMove& from) {
    const Entry& global = *form_.global;
    const bool is_one = global.elements() == 1;
    Box box = Box::whole(global.shape);
    if (!is_one) {
      for (size_t axis = 0; axis < box.size.size(); ++axis) {
        box.offset[axis] = bounds_.offset[axis];
        box.size[axis] = bounds_.size[axis];
      }
    }
    const std::vector<float> second = reader.read_scales(*from.compiler, global, box);
    const size_t leading = is_one ? 0 : global.shape.size();
    int64_t inner = 1;  // blocks that an element of the leading axes has
    for (size_t axis = leading; axis < rank_; ++axis) inner *= blocks_.size[axis];
    for (size_t i = 0; i < scales_.size(); ++i) {
      const float by = second[is_one ? 0 : i / static_cast<size_t>(inner)];
      scales_[i] = form_.divides ? scales_[i] / by : scales_[i] * by;
    }
  }

  const Quantised& form_;
  Dims shape_;
  size_t rank_;
  Box bounds_, blocks_;
  const Decoder& decoder_;
  std::span<const std::byte> codes_;
  int64_t first_code_ = 0, row_bytes_ = 0;
  std::vector<float> scales_, zeros_;
};

Dequantiser::Dequantiser(SourceFiles& sources, MoveElements move_elements)
    : sources_(sources), move_elements_(move_elements) {}
Dequantiser::~Dequantiser() = default;

std::span<std::byte> Dequantiser::read(PlanCompiler& compiler, const Entry& part, const Box& box,
                                       DType dtype, Buffer& buffer) {
  const auto bytes = static_cast<uint64_t>(element_count(box.size, part.name) * size_bytes(dtype));
  const std::span<std::byte> into = buffer.take(bytes);
  MemoryTarget target("memory", into);
  memory_[0] = &target;
  if (!runner_) runner_ = std::make_unique<TileRunner>(sources_, memory_, nullptr, nullptr);
  runner_->run(compiler.compile_stored(part, box, dtype));
  return into;
}

std::vector<float> Dequantiser::read_scales(PlanCompiler& compiler, const Entry& part,
                                            const Box& box) {
  std::vector<float> scales(static_cast<size_t>(element_count(box.size, part.name)));
  const bool is_exponent = are_exponents(part.dtype);
  const auto bytes = read(compiler, part, box, is_exponent ? part.dtype : DType::f32, others_);
  if (is_exponent) {
    std::ranges::transform(bytes, scales.begin(), [](std::byte exponent) {
      return power_of_two(std::to_integer<uint8_t>(exponent));
    });
  } else {
    std::memcpy(scales.data(), bytes.data(), bytes.size());
  }
  return scales;
}

std::vector<float> Dequantiser::read_zeros(const QuantisedMove& from, const Box& blocks,
                                           const Dims& grid) {
  const Entry& part = *from.entry->quantised->zeros;
  std::vector<float> zeros(static_cast<size_t>(element_count(blocks.size, part.name)));
  if (part.dtype == DType::i8) {
    const auto bytes =
        read(*from.compiler, part, in_shape(part.shape, blocks, grid), DType::i8, others_);
    std::ranges::transform(bytes, zeros.begin(), [](std::byte zero) {
      return static_cast<float>(static_cast<int8_t>(zero));
    });
    return zeros;
  }
  // Eight rows of blocks are in a row of words, the first in the lowest bits.
  const size_t rows = blocks.size.size() - 2;
  Box words = blocks;
  words.offset[rows] /= kWordZeros;
  words.size[rows] =
      (blocks.offset[rows] + blocks.size[rows] - 1) / kWordZeros - words.offset[rows] + 1;
  const auto bytes = read(*from.compiler, part, words, DType::i32, others_);
  const int64_t columns = blocks.size.back(), high = blocks.size[rows], low = words.size[rows];
  for (size_t i = 0; i < zeros.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t row = at / columns % high, outer = at / columns / high;
    const int64_t zero = blocks.offset[rows] + row;
    const int64_t word =
        (outer * low + zero / kWordZeros - words.offset[rows]) * columns + at % columns;
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + word * static_cast<int64_t>(sizeof bits), sizeof bits);
    zeros[i] = static_cast<float>(bits >> (4 * (zero % kWordZeros)) & 15);
  }
  return zeros;
}

void Dequantiser::gather(const Transfer& transfer, std::byte* to,
                         const std::vector<int64_t>& strides) {
  gather(transfer, transfer.quantised->move, to, strides);
}

void Dequantiser::gather(const Transfer& transfer, const Move& move, std::byte* to,
                         const std::vector<int64_t>& strides) {
  const QuantisedMove& from = *transfer.quantised;
  const size_t rank = from.entry->shape.size();
  // The rows are cut where they are furthest apart, so that what is read is together.
  const int64_t total = move.elements();
  if (total == 0) return;
  size_t widest = move.loops.size();
  for (size_t i = 0; i < move.loops.size(); ++i) {
    const Loop& loop = move.loops[i];
    if (loop.count == 1) continue;
    if (widest == move.loops.size()) widest = i;
    const Loop& other = move.loops[widest];
    if (std::tuple(loop.in_axis, -loop.in_step) < std::tuple(other.in_axis, -other.in_step)) {
      widest = i;
    }
  }
  // Rows that are far apart are read with those between them, as long as these are few.
  const bool is_spread = elements_in(input_bounds(move, rank)) > kMostCodes;
  if ((total > kStripValues || is_spread) && widest < move.loops.size()) {
    const Loop& loop = move.loops[widest];
    int64_t most = std::max<int64_t>(1, kStripValues / (total / loop.count));
    if (is_spread) most = std::min(most, (loop.count + 1) / 2);
    if (most < loop.count) {
      for (int64_t at = 0; at < loop.count; at += most) {
        Move part = move;
        part.loops[widest].count = std::min(most, loop.count - at);
        part.in_origin[static_cast<size_t>(loop.in_axis)] += at * loop.in_step;
        gather(transfer, part, to + at * strides[widest], strides);
      }
      return;
    }
  }
  const Strip strip(*this, from, move);
  // The rows one after another, as the loops over rows meet them; then their columns.
  std::vector<int64_t> row_strides(move.loops.size(), 0);
  int64_t rows = 1;
  for (size_t i = move.loops.size(); i-- > 0;) {
    if (!is_over_rows(move.loops[i], rank)) continue;
    row_strides[i] = rows;
    rows *= move.loops[i].count;
  }
  const bool is_rounded_later = transfer.half != FloatHalf::whole || transfer.addend != 0;
  const DType dtype = is_rounded_later ? DType::f32 : transfer.out_dtype;
  const int64_t bytes = size_bytes(dtype), width = strip.width();
  const bool in_place = !is_rounded_later && !transfer.math.any() && width > 1 &&
                        std::ranges::all_of(move.loops, [&](const Loop& loop) {
                          const auto i = static_cast<size_t>(&loop - move.loops.data());
                          return is_over_rows(loop, rank) || loop.count == 1 ||
                                 (loop.in_step == 1 && loop.count == width && strides[i] == bytes);
                        });
  std::byte* const values =
      in_place ? to : values_.take(static_cast<uint64_t>(rows * width * bytes)).data();
  for (int64_t row = 0; row < rows; ++row) {
    Dims at = move.in_origin;
    int64_t place = in_place ? 0 : row * width * bytes;
    for (size_t i = 0; i < move.loops.size(); ++i) {
      const Loop& loop = move.loops[i];
      if (!is_over_rows(loop, rank)) continue;
      const int64_t index = row / row_strides[i] % loop.count;
      at[static_cast<size_t>(loop.in_axis)] += index * loop.in_step;
      if (in_place) place += index * strides[i];
    }
    strip.decode(at, dtype, values + place);
  }
  if (in_place) return;
  std::vector<int64_t> from_strides;
  for (size_t i = 0; i < move.loops.size(); ++i) {
    const Loop& loop = move.loops[i];
    from_strides.push_back(bytes *
                           (is_over_rows(loop, rank) ? row_strides[i] * width : loop.in_step));
  }
  Transfer moved = transfer;
  moved.in_dtype = dtype;
  moved.loops.clear();
  for (size_t i = 0; i < move.loops.size(); ++i) {
    moved.loops.push_back({move.loops[i].count, from_strides[i], strides[i]});
  }
  move_elements_(moved, values, from_strides, to, strides);
}

uint64_t calls_of_values(const Transfer& transfer) {
  const auto strips = static_cast<uint64_t>(transfer.elements() / kStripValues + 1);
  return strips * (2 + (transfer.quantised->entry->quantised->global ? 1 : 0));
}

}  // namespace ferry
