#include "ckpt/engine/quantise/quantising_runner.h"

#include <algorithm>

namespace ferry {
namespace {

int64_t blocks_in(int64_t extent, int64_t block) { return extent / block + (extent % block != 0); }

// The box of the scales of a box of whole blocks.
Box scales_box(const Box& box, const Dims& block) {
  Box scales = box;
  for (size_t axis = 0; axis < block.size(); ++axis) {
    scales.offset[axis] /= block[axis];
    scales.size[axis] = blocks_in(box.size[axis], block[axis]);
  }
  return scales;
}

}  // namespace

std::vector<Box> cut_into_blocks(const Dims& shape, const Dims& block, int64_t max_elements) {
  const int64_t columns = std::clamp(max_elements / block[0] / block[1] * block[1], block[1],
                                     std::max<int64_t>(block[1], shape[1]));
  const int64_t rows = columns < shape[1]
                           ? block[0]
                           : std::max<int64_t>(1, max_elements / block[0] / columns) * block[0];
  std::vector<Box> boxes;
  for (int64_t row = 0; row < shape[0]; row += rows) {
    for (int64_t column = 0; column < shape[1]; column += columns) {
      boxes.push_back(
          {{row, column}, {std::min(rows, shape[0] - row), std::min(columns, shape[1] - column)}});
    }
  }
  return boxes;
}

QuantisingRunner::QuantisingRunner(const Plan& plan, PlanCompiler& compiler, SourceFiles& sources,
                                   std::span<WritableFile* const> targets, ItemDigester& digester)
    : plan_(plan),
      compiler_(compiler),
      targets_(targets),
      digester_(digester),
      gatherer_(sources, memory_, nullptr, nullptr) {}

std::vector<Transfer> QuantisingRunner::run(size_t entry, const Box& box) {
  const Quantise& how = *plan_.recipes[entry].quantise;
  gather(entry, box, how.values);
  quantise(box, how);
  return {write(entry, box, quantised_),
          write(how.scales, scales_box(box, how.block), std::as_bytes(std::span(scales_)))};
}

void QuantisingRunner::gather(size_t entry, const Box& box, DType values) {
  const auto elements = static_cast<uint64_t>(box.size[0] * box.size[1]);
  tile_ = values_.take(elements * static_cast<uint64_t>(size_bytes(values)));
  quantised_ = bytes_.take(elements);
  MemoryTarget target("memory", tile_);
  memory_[0] = &target;
  for (const Box& part : compiler_.parts(entry, box, tile_.size())) {
    gatherer_.run(compiler_.compile_to_memory(entry, box, values, part));
  }
}

void QuantisingRunner::quantise(const Box& box, const Quantise& how) {
  const int64_t rows = box.size[0], columns = box.size[1];
  const int64_t element_bytes = size_bytes(how.values);
  BlockQuantiser quantiser(how.values);
  scales_.clear();
  for (int64_t row = 0; row < rows; row += how.block[0]) {
    for (int64_t column = 0; column < columns; column += how.block[1]) {
      const int64_t first = row * columns + column;
      const BlockRows block{tile_.data() + first * element_bytes, columns * element_bytes,
                            std::min(how.block[0], rows - row),
                            std::min(how.block[1], columns - column)};
      scales_.push_back(quantiser.quantise(block, quantised_.data() + first, columns));
    }
  }
}

// Row by row, or at once where the rows of the box are whole rows of the entry.
Transfer QuantisingRunner::write(size_t position, const Box& box,
                                 std::span<const std::byte> bytes) {
  const Entry& entry = plan_.target.entries[position];
  const Extent& extent = entry.chunks.front().extent;
  const int64_t element_bytes = size_bytes(entry.dtype), pitch = entry.shape[1] * element_bytes;
  Transfer written;
  written.in_file = Transfer::kZeros;
  written.out_file = extent.file;
  written.out_offset =
      extent.offset + static_cast<uint64_t>(box.offset[0] * pitch + box.offset[1] * element_bytes);
  written.out_dtype = entry.dtype;
  const bool whole_rows = box.size[1] == entry.shape[1];
  const int64_t runs = whole_rows ? 1 : box.size[0];
  const auto run_bytes = bytes.size() / static_cast<uint64_t>(runs);
  written.loops = {{runs, 0, pitch},
                   {static_cast<int64_t>(run_bytes) / element_bytes, 0, element_bytes}};
  for (int64_t run = 0; run < runs; ++run) {
    const uint64_t offset = written.out_offset + static_cast<uint64_t>(run * pitch);
    const auto part = bytes.subspan(static_cast<uint64_t>(run) * run_bytes, run_bytes);
    targets_[extent.file]->write(offset, part);
    digester_.show(extent.file, offset, part);
  }
  return written;
}

}  // namespace ferry
