#include "ckpt/engine/quantise/quantising_runner.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/engine.h"
#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {
namespace {

// Elements that are read at once for the largest: they stay in a core's cache.
constexpr int64_t kMostRead = 128 << 10;
constexpr int64_t kMostEncoded = 256 << 10;  // elements, the same
constexpr int64_t kZerosInElement = 8;

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

Dims tile_unit(const Quantise& how) {
  Dims unit = how.block;
  if (how.rule == QuantiseRule::fp8_tensor) unit[0] = 1;
  if (how.rule == QuantiseRule::int4_zeros) unit[0] *= kZerosInElement;
  return unit;
}

std::map<uint32_t, float> largest_magnitudes(const Plan& plan, PlanCompiler& compiler,
                                             SourceFiles& sources, int threads,
                                             uint64_t bytes_per_thread,
                                             const EngineOptions& options) {
  struct Part {
    size_t entry;
    Box box;
    std::atomic<uint32_t>* largest;
  };
  std::map<uint32_t, std::atomic<uint32_t>> bits;  // of numbers that are not negative
  std::vector<Part> parts;
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    const auto& how = plan.recipes[i].quantise;
    if (!how || !needs_largest(how->rule)) continue;
    const auto most = static_cast<int64_t>(bytes_per_thread) / (3 * size_bytes(how->values));
    for (Box& box : cut_into_tiles(how->shape, std::clamp<int64_t>(most, 1, kMostRead))) {
      parts.push_back({i, std::move(box), &bits[how->together]});
    }
  }
  std::atomic<size_t> next{0};
  const int used = parts.empty() ? 0 : threads;
  on_threads(used, [&](int, const std::atomic<bool>& stop) {
    std::array<WritableFile*, 1> memory{};
    TileRunner runner(sources, memory, nullptr, nullptr);
    Buffer buffer;
    for (size_t i = next++; i < parts.size() && !stop; i = next++) {
      if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
      const DType dtype = plan.recipes[parts[i].entry].quantise->values;
      const int64_t count = parts[i].box.size[0] * parts[i].box.size[1];
      const auto values = buffer.take(static_cast<uint64_t>(count * size_bytes(dtype)));
      MemoryTarget target("memory", values);
      memory[0] = &target;
      runner.run(compiler.compile_to_memory(parts[i].entry, parts[i].box, dtype));
      const auto found = std::bit_cast<uint32_t>(largest_magnitude(values.data(), dtype, count));
      uint32_t known = *parts[i].largest;
      while (found > known && !parts[i].largest->compare_exchange_weak(known, found)) {
      }
    }
  });
  std::map<uint32_t, float> largest;
  for (const auto& [group, found] : bits) largest[group] = std::bit_cast<float>(found.load());
  return largest;
}

QuantisingRunner::QuantisingRunner(const Plan& plan, PlanCompiler& compiler, SourceFiles& sources,
                                   std::span<WritableFile* const> targets, ItemDigester& digester,
                                   const std::map<uint32_t, float>& largest)
    : plan_(plan),
      compiler_(compiler),
      targets_(targets),
      digester_(digester),
      largest_(largest),
      gatherer_(sources, memory_, nullptr, nullptr) {}

std::vector<Transfer> QuantisingRunner::run(size_t entry, const Box& box) {
  const Quantise& how = *plan_.recipes[entry].quantise;
  const auto largest = largest_.find(how.together);
  Encoder encoder(how, largest == largest_.end() ? 0 : largest->second);
  gather(entry, box, how.values);
  const int64_t in_element = codes_per_element(how.rule);
  Box codes = box;
  codes.offset[1] /= in_element;
  codes.size[1] = blocks_in(box.size[1], in_element);
  const int64_t code_bytes = size_bytes(codes_type(how.rule)), pitch = codes.size[1] * code_bytes;
  codes_ = codes_buffer_.take(static_cast<uint64_t>(codes.size[0] * pitch));
  if (box.size[1] % in_element != 0) std::ranges::fill(codes_, std::byte{0});
  quantise(box, how, pitch, encoder);
  std::vector<Transfer> written = {
      write(entry, codes, blocks_in(how.shape[1], in_element), codes_)};
  const Dims grid = block_grid(how.shape, how.block);
  const Box blocks = blocks_of(box, how.block);
  const std::vector<QuantisedOutput> parts = parts_of(how);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == QuantisedOutput::scales) {
      written.push_back(write(how.parts[i], blocks, grid[1], scales_));
    } else if (parts[i].kind == QuantisedOutput::zeros) {
      Box packed = blocks;
      packed.offset[0] /= kZerosInElement;
      packed.size[0] = blocks_in(blocks.size[0], kZerosInElement);
      written.push_back(write(how.parts[i], packed, grid[1], zeros_));
    } else if (box.offset == Dims{0, 0}) {
      const float global = encoder.global();
      written.push_back(
          write(how.parts[i], {{0, 0}, {1, 1}}, 1, std::as_bytes(std::span(&global, 1))));
    }
  }
  return written;
}

void QuantisingRunner::gather(size_t entry, const Box& box, DType values) {
  const auto elements = static_cast<uint64_t>(box.size[0] * box.size[1]);
  tile_ = values_.take(elements * static_cast<uint64_t>(size_bytes(values)));
  MemoryTarget target("memory", tile_);
  memory_[0] = &target;
  gatherer_.run(compiler_.compile_to_memory(entry, box, values));
}

// High blocks some at a time, so that their values are in a core's cache when they are encoded.
void QuantisingRunner::quantise(const Box& box, const Quantise& how, int64_t pitch,
                                Encoder& encoder) {
  const int64_t rows = box.size[0], columns = box.size[1];
  const int64_t element_bytes = size_bytes(how.values);
  const int64_t high = how.rule == QuantiseRule::fp8_tensor ? 1 : how.block[0];
  const int64_t wide = how.block[1], blocks = blocks_in(columns, wide);
  const int64_t at_once =
      high == 1 ? columns : std::max<int64_t>(1, kMostEncoded / high / wide) * wide;
  const auto part = parts_of(how).front();
  const bool has_scales = part.kind == QuantisedOutput::scales;
  const bool has_zeros = how.rule == QuantiseRule::int4_zeros;
  const int64_t scale_bytes = size_bytes(part.dtype), block_rows = blocks_in(rows, high);
  scales_.resize(static_cast<size_t>(block_rows * blocks * scale_bytes));
  const int64_t words = has_zeros ? blocks_in(block_rows, kZerosInElement) * blocks : 0;
  zeros_.assign(static_cast<size_t>(4 * words), std::byte{0});
  row_zeros_.resize(static_cast<size_t>(blocks));
  for (int64_t row = 0; row < rows; row += high) {
    const int64_t height = std::min(high, rows - row), block_row = row / high;
    for (int64_t first = 0; first < columns; first += at_once) {
      const int64_t width = std::min(at_once, columns - first), block = first / wide;
      encoder.encode(
          {tile_.data() + (row * columns + first) * element_bytes, columns, height, width}, wide,
          {codes_.data() + row * pitch + first / codes_in_byte(how.rule), pitch,
           has_scales ? scales_.data() + (block_row * blocks + block) * scale_bytes : nullptr,
           has_zeros ? row_zeros_.data() : nullptr});
      if (has_zeros) add_zeros(block_row, blocks, block, blocks_in(width, wide));
    }
  }
}

// Of `count` blocks from `first` on in a row of blocks: each its 4 bits of a word of eight rows.
void QuantisingRunner::add_zeros(int64_t block_row, int64_t blocks, int64_t first, int64_t count) {
  const int64_t in_word = block_row % kZerosInElement;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = block_row / kZerosInElement * blocks + first + i;
    zeros_[static_cast<size_t>(4 * word + in_word / 2)] |=
        static_cast<std::byte>(row_zeros_[static_cast<size_t>(i)] << 4 * (in_word % 2));
  }
}

// Row by row, or at once where the rows of the box are whole rows of the entry, of `columns`
// elements.
Transfer QuantisingRunner::write(size_t position, const Box& box, int64_t columns,
                                 std::span<const std::byte> bytes) {
  const Entry& entry = plan_.target.entries[position];
  const Extent& extent = entry.chunks.front().extent;
  const int64_t element_bytes = size_bytes(entry.dtype), pitch = columns * element_bytes;
  Transfer written;
  written.in_file = Transfer::kZeros;
  written.out_file = extent.file;
  written.out_offset =
      extent.offset + static_cast<uint64_t>(box.offset[0] * pitch + box.offset[1] * element_bytes);
  written.out_dtype = entry.dtype;
  const bool whole_rows = box.size[1] == columns;
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
