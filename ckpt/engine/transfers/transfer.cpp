#include "ckpt/engine/transfers/transfer.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "ckpt/base/box_index.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/transfers/dequantise.h"
#include "ckpt/engine/transfers/piece.h"

namespace ferry {
namespace {

// A chunk's place in the index of its entry; located and cut when first needed.
struct IndexedEntry {
  BoxIndex index;
  BoxIndex moves;                          // of a target: what each of its recipe's moves writes
  std::vector<Chunk> located;              // owns the extents that transfers point at
  std::vector<std::vector<Piece>> pieces;  // empty: not yet
};

// Where a piece of a target is written, and as what.
struct OutPiece {
  Piece piece;
  uint32_t file;
  DType dtype;
};

void add(Transfer transfer, const OutPiece& out, std::vector<Transfer>& transfers) {
  transfer.out_file = out.file;
  transfer.out_dtype = out.dtype;
  transfers.push_back(std::move(transfer));
}

std::vector<Box> chunk_boxes(const Entry& entry) {
  std::vector<Box> boxes;
  boxes.reserve(entry.chunks.size());
  for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
  return boxes;
}

uint64_t first_byte(const Extent& extent) {
  return extent.zstd ? extent.payload_offset : extent.offset + extent.payload_offset;
}

// Sorts loops by target stride and joins those that continue each other on both sides.
void merge_loops(std::vector<Transfer::Loop>& loops) {
  std::erase_if(loops, [](const Transfer::Loop& loop) { return loop.count == 1; });
  std::stable_sort(
      loops.begin(), loops.end(),
      [](const Transfer::Loop& a, const Transfer::Loop& b) { return a.out_stride > b.out_stride; });
  for (size_t i = loops.size(); i-- > 1;) {
    Transfer::Loop &outer = loops[i - 1], &inner = loops[i];
    if (outer.in_stride != inner.count * inner.in_stride) continue;
    if (outer.out_stride != inner.count * inner.out_stride) continue;
    outer = {outer.count * inner.count, inner.in_stride, inner.out_stride};
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

uint64_t byte_position(const Piece& piece, const Dims& coordinates) {
  auto position = static_cast<int64_t>(piece.offset);
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    position += (coordinates[axis] - piece.box.offset[axis]) * piece.strides[axis];
  }
  return static_cast<uint64_t>(position);
}

}  // namespace

int64_t Transfer::elements() const {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.count;
  return count;
}

uint64_t Transfer::run_bytes() const {
  if (in_file == kZeros || in_dtype != out_dtype || scale || math.any()) return 0;
  const int64_t bytes = size_bytes(in_dtype);
  if (loops.empty()) return static_cast<uint64_t>(bytes);
  const Loop& last = loops.back();
  const bool contiguous = last.in_stride == bytes && last.out_stride == bytes;
  return static_cast<uint64_t>(contiguous ? last.count * bytes : 0);
}

struct PlanCompiler::State {
  explicit State(const Plan& p) : plan(p), scales(*p.source) {}

  IndexedEntry& source(uint32_t position);
  IndexedEntry& target(size_t position);
  const std::vector<Piece>& source_pieces(uint32_t position, IndexedEntry& indexed, uint32_t chunk);
  IndexedEntry& indexed(std::map<size_t, IndexedEntry>& cache, size_t position, const Entry& entry,
                        const std::vector<Move>& moves);
  void add_transfers(size_t target_entry, const Box& wanted, const OutPiece& out,
                     std::vector<Transfer>& transfers);
  void add_move(const Recipe& recipe, const Move& part, const OutPiece& out,
                std::vector<Transfer>& transfers);

  const Plan& plan;
  std::mutex mutex;  // guards the caches; std::map keeps references valid while it grows
  std::map<size_t, IndexedEntry> sources;
  std::map<size_t, IndexedEntry> targets;
  ScaleReader scales;
};

IndexedEntry& PlanCompiler::State::indexed(std::map<size_t, IndexedEntry>& cache, size_t position,
                                           const Entry& entry, const std::vector<Move>& moves) {
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = cache.try_emplace(position);
  if (is_new) {
    at->second.index = BoxIndex(chunk_boxes(entry));
    std::vector<Box> written;
    for (const Move& move : moves) written.push_back(output_bounds(move, entry.shape.size()));
    at->second.moves = BoxIndex(written);
    at->second.located.resize(entry.chunks.size());
    at->second.pieces.resize(entry.chunks.size());
  }
  return at->second;
}

IndexedEntry& PlanCompiler::State::source(uint32_t position) {
  return indexed(sources, position, plan.source->entries.at(position), {});
}

IndexedEntry& PlanCompiler::State::target(size_t position) {
  return indexed(targets, position, plan.target.entries.at(position),
                 plan.recipes.at(position).moves);
}

const std::vector<Piece>& PlanCompiler::State::source_pieces(uint32_t position,
                                                             IndexedEntry& indexed,
                                                             uint32_t chunk_index) {
  {
    const std::lock_guard lock(mutex);
    if (!indexed.pieces[chunk_index].empty()) return indexed.pieces[chunk_index];
  }
  const Catalog& catalog = *plan.source;
  const Entry& entry = catalog.entries[position];
  Chunk chunk = entry.chunks[chunk_index];
  if (chunk.extent.encoding != Encoding::raw) {
    if (!catalog.locator)
      fail(ErrorKind::internal, "tensor {}: no locator for its chunks", entry.name);
    chunk = catalog.locator->locate(catalog, entry, chunk);
  }
  std::vector<Piece> pieces =
      cut_into_pieces(chunk, size_bytes(entry.dtype), first_byte(chunk.extent));
  const std::lock_guard lock(mutex);
  if (indexed.pieces[chunk_index].empty()) {  // another thread may have been faster
    indexed.located[chunk_index] = std::move(chunk);
    indexed.pieces[chunk_index] = std::move(pieces);
  }
  return indexed.pieces[chunk_index];
}

PlanCompiler::PlanCompiler(const Plan& plan) : state_(std::make_unique<State>(plan)) {}
PlanCompiler::~PlanCompiler() = default;

namespace {

// A transfer between two pieces; `move` has been clipped to both.
Transfer transfer_of(const Move& move, const Piece& in, const Piece& out) {
  Transfer transfer;
  transfer.in_offset = byte_position(in, move.in_origin);
  transfer.out_offset = byte_position(out, move.out_origin);
  for (const Loop& loop : move.loops) {
    transfer.loops.push_back({loop.count, loop.in_step * in.strides[loop.in_axis],
                              loop.out_step * out.strides[loop.out_axis]});
  }
  merge_loops(transfer.loops);
  return transfer;
}

Transfer zeros_of(const Box& box, const Piece& out) {
  Transfer transfer;
  transfer.in_file = Transfer::kZeros;
  transfer.out_offset = byte_position(out, box.offset);
  for (size_t axis = 0; axis < box.size.size(); ++axis) {
    transfer.loops.push_back({box.size[axis], 0, out.strides[axis]});
  }
  // Only the target's side tells which loops continue each other.
  for (Transfer::Loop& loop : transfer.loops) loop.in_stride = loop.out_stride;
  merge_loops(transfer.loops);
  for (Transfer::Loop& loop : transfer.loops) loop.in_stride = 0;
  return transfer;
}

}  // namespace

// What writes the elements of `wanted` into `out`, a piece of the target that holds them.
void PlanCompiler::State::add_transfers(size_t target_entry, const Box& wanted, const OutPiece& out,
                                        std::vector<Transfer>& transfers) {
  const Recipe& recipe = plan.recipes.at(target_entry);
  for (const Box& zeros : recipe.zeros) {
    const Box part = intersection(zeros, wanted);
    if (!overlaps(part, part)) continue;
    Transfer transfer = zeros_of(part, out.piece);
    transfer.in_dtype = out.dtype;
    add(std::move(transfer), out, transfers);
  }
  for (uint32_t move_position : target(target_entry).moves.overlapping(wanted)) {
    const Move& move = recipe.moves[move_position];
    for (const Move& part : clip_output(move, wanted)) {
      add_move(recipe, part, out, transfers);
    }
  }
}

void PlanCompiler::State::add_move(const Recipe& recipe, const Move& part, const OutPiece& out,
                                   std::vector<Transfer>& transfers) {
  const uint32_t position = recipe.inputs.at(part.input);
  const Entry& entry = plan.source->entries[position];
  const BlockScales* blocks = recipe.scales_of(part.input);
  IndexedEntry& in_index = source(position);
  const Box in_bounds = input_bounds(part, entry.shape.size());
  for (uint32_t in_position : in_index.index.overlapping(in_bounds)) {
    for (const Piece& in : source_pieces(position, in_index, in_position)) {
      const Chunk& located = in_index.located[in_position];
      const auto add_exact = [&](const Move& exact, std::optional<float> scale) {
        Transfer transfer = transfer_of(exact, in, out.piece);
        transfer.in_file = located.extent.file;
        transfer.in_dtype = entry.dtype;
        transfer.scale = scale;
        transfer.math = located.math;
        if (located.extent.zstd) transfer.zstd = &located.extent;
        add(std::move(transfer), out, transfers);
      };
      for (const Move& exact : clip_input(part, in.box)) {
        if (blocks == nullptr) {
          add_exact(exact, std::nullopt);
          continue;
        }
        const auto values = scales.read(blocks->scales);
        for (const auto& [block, scale] : cut_by_block(exact, *blocks, *values, entry.shape)) {
          add_exact(block, scale);
        }
      }
    }
  }
}

std::vector<Transfer> PlanCompiler::compile(size_t target_entry, const Box& box) {
  const Entry& target = state_->plan.target.entries.at(target_entry);
  std::vector<Transfer> transfers;
  for (uint32_t position : state_->target(target_entry).index.overlapping(box)) {
    const Chunk& chunk = target.chunks[position];
    for (Piece& piece :
         cut_into_pieces(chunk, size_bytes(target.dtype), first_byte(chunk.extent))) {
      const Box wanted = intersection(piece.box, box);
      if (std::find(wanted.size.begin(), wanted.size.end(), 0) != wanted.size.end()) continue;
      const OutPiece out{std::move(piece), chunk.extent.file, target.dtype};
      state_->add_transfers(target_entry, wanted, out, transfers);
    }
  }
  return transfers;
}

std::vector<Transfer> PlanCompiler::compile_to_memory(size_t target_entry, const Box& box,
                                                      DType dtype) {
  OutPiece out{{box, 0, row_major_strides(box.size)}, 0, dtype};
  for (int64_t& stride : out.piece.strides) stride *= size_bytes(dtype);
  std::vector<Transfer> transfers;
  state_->add_transfers(target_entry, box, out, transfers);
  return transfers;
}

}  // namespace ferry
