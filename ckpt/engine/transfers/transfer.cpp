#include "ckpt/engine/transfers/transfer.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "ckpt/base/box_index.h"
#include "ckpt/base/error.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/transfers/dequantise.h"
#include "ckpt/engine/transfers/piece.h"

namespace ferry {
namespace {

// What it takes to dequantise a block, however few elements it has: its scale, its transfer, and
// where that reads and writes.
constexpr double kBlockBytes = 1024;

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

// Sorts loops by target stride and joins those that continue each other on both sides, and in the
// remainders if there are any: their loops stay the same but for their own strides.
void merge_loops(std::vector<Transfer::Loop>& loops, std::vector<int64_t>* others = nullptr) {
  struct Both {
    Transfer::Loop loop;
    int64_t other;
  };
  std::vector<Both> all;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].count != 1) all.push_back({loops[i], others ? (*others)[i] : 0});
  }
  std::stable_sort(all.begin(), all.end(), [](const Both& a, const Both& b) {
    return a.loop.out_stride > b.loop.out_stride;
  });
  for (size_t i = all.size(); i-- > 1;) {
    Transfer::Loop &outer = all[i - 1].loop, &inner = all[i].loop;
    if (outer.in_stride != inner.count * inner.in_stride) continue;
    if (outer.out_stride != inner.count * inner.out_stride) continue;
    if (others && all[i - 1].other != inner.count * all[i].other) continue;
    outer = {outer.count * inner.count, inner.in_stride, inner.out_stride};
    all[i - 1].other = all[i].other;
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  }
  loops.clear();
  if (others) others->clear();
  for (const Both& both : all) {
    loops.push_back(both.loop);
    if (others) others->push_back(both.other);
  }
}

}  // namespace

int64_t Transfer::elements() const {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.count;
  return count;
}

uint64_t Transfer::run_bytes() const {
  if (in_file == kZeros || in_dtype != out_dtype || scale || addend != 0 || math.any() ||
      remainders) {
    return 0;
  }
  if (half != FloatHalf::whole) return 0;
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
  double blocks(size_t target_entry, const Box& region);
  void add_transfers(size_t target_entry, const Box& region, const OutPiece& out,
                     std::vector<Transfer>& transfers);
  template <typename Consume>
  void for_each_piece(uint32_t position, const Move& move, const Consume& consume);
  void add_move(const Recipe& recipe, const Move& move, const OutPiece& out,
                std::vector<Transfer>& transfers);
  void add_joined(uint32_t position, const Move& move, const OutPiece& out,
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
      cut_into_pieces(chunk, size_bytes(entry.stored_dtype()), first_byte(chunk.extent));
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

// The same where `low` holds remainders of the elements of `in`, at the same coordinates.
Transfer transfer_of(const Move& move, const Piece& in, const Piece& low, const Piece& out,
                     Transfer& remainders) {
  Transfer transfer;
  transfer.in_offset = byte_position(in, move.in_origin);
  transfer.out_offset = byte_position(out, move.out_origin);
  remainders.in_offset = byte_position(low, move.in_origin);
  remainders.out_offset = transfer.out_offset;
  std::vector<int64_t> strides;
  for (const Loop& loop : move.loops) {
    transfer.loops.push_back({loop.count, loop.in_step * in.strides[loop.in_axis],
                              loop.out_step * out.strides[loop.out_axis]});
    strides.push_back(loop.in_step * low.strides[loop.in_axis]);
  }
  merge_loops(transfer.loops, &strides);
  remainders.loops = transfer.loops;
  for (size_t i = 0; i < strides.size(); ++i) remainders.loops[i].in_stride = strides[i];
  return transfer;
}

Transfer zeros_of(const Box& box, const Piece& out) {
  Transfer transfer;
  transfer.in_file = Transfer::kZeros;
  transfer.out_offset = byte_position(out, box.offset);
  for (size_t axis = 0; axis < box.size.size(); ++axis) {
    transfer.loops.push_back({box.size[axis], 0, out.strides[axis]});
  }
  // Only the target's side shows which loops continue each other.
  for (Transfer::Loop& loop : transfer.loops) loop.in_stride = loop.out_stride;
  merge_loops(transfer.loops);
  for (Transfer::Loop& loop : transfer.loops) loop.in_stride = 0;
  return transfer;
}

// Where a piece of a source entry is.
struct Located {
  const Entry* entry;
  const Chunk* chunk;
  const Piece* piece;
};

void set_source(const Located& in, Transfer& transfer) {
  transfer.in_file = in.chunk->extent.file;
  transfer.in_dtype = in.entry->stored_dtype();
  transfer.math = in.chunk->math;
  if (in.chunk->extent.zstd) transfer.zstd = &in.chunk->extent;
}

}  // namespace

// About how many blocks of quantised inputs the elements of `region` are read from.
double PlanCompiler::State::blocks(size_t target_entry, const Box& region) {
  const Recipe& recipe = plan.recipes.at(target_entry);
  double blocks = 0;
  for (const uint32_t position : target(target_entry).moves.overlapping(region)) {
    const Move& move = recipe.moves[position];
    const BlockScales* form = recipe.scales_of(move.input);
    if (form == nullptr) continue;
    for (const Move& part : clip_output(move, region)) {
      double in_part = 1;
      for (const int64_t count : blocks_of(part, form->block).size) {
        in_part *= static_cast<double>(count);
      }
      blocks += in_part;
    }
  }
  return blocks;
}

// What writes the elements of `region` into `out`, a piece of the target that holds them.
void PlanCompiler::State::add_transfers(size_t target_entry, const Box& region, const OutPiece& out,
                                        std::vector<Transfer>& transfers) {
  const Recipe& recipe = plan.recipes.at(target_entry);
  for (const Box& zeros : recipe.zeros) {
    const Box part = intersection(zeros, region);
    if (!overlaps(part, part)) continue;
    Transfer transfer = zeros_of(part, out.piece);
    transfer.in_dtype = out.dtype;
    add(std::move(transfer), out, transfers);
  }
  for (uint32_t move_position : target(target_entry).moves.overlapping(region)) {
    const Move& move = recipe.moves[move_position];
    for (const Move& part : clip_output(move, region)) {
      add_move(recipe, part, out, transfers);
    }
  }
}

// Calls consume(located, part) with the pieces of a source entry that `move` reads from, each with
// its part of the move.
template <typename Consume>
void PlanCompiler::State::for_each_piece(uint32_t position, const Move& move,
                                         const Consume& consume) {
  const Entry& entry = plan.source->entries[position];
  IndexedEntry& index = source(position);
  for (const uint32_t i : index.index.overlapping(input_bounds(move, entry.shape.size()))) {
    for (const Piece& piece : source_pieces(position, index, i)) {
      const Located located{&entry, &index.located[i], &piece};
      for (const Move& part : clip_input(move, piece.box)) consume(located, part);
    }
  }
}

void PlanCompiler::State::add_move(const Recipe& recipe, const Move& move, const OutPiece& out,
                                   std::vector<Transfer>& transfers) {
  const uint32_t position = recipe.inputs.at(move.input);
  const Entry& entry = plan.source->entries[position];
  const BlockScales* blocks = recipe.scales_of(move.input);
  const bool whole = recipe.half == FloatHalf::whole;
  if (entry.remainders && whole) return add_joined(position, move, out, transfers);
  // Either half of what is stored in two halves can be read.
  const bool upper = entry.remainders && recipe.half == FloatHalf::upper;
  const uint32_t stored = upper ? entry.remainders->upper : position;
  for_each_piece(stored, move, [&](const Located& in, const Move& exact) {
    const auto add_exact = [&](const Move& part, std::optional<float> scale) {
      Transfer transfer = transfer_of(part, *in.piece, out.piece);
      set_source(in, transfer);
      transfer.scale = scale;
      transfer.addend = recipe.added_to(move.input);
      if (transfer.addend != 0 && transfer.math.any()) {
        fail(ErrorKind::unsupported, "tensor {}: numbers are not added to a negated view",
             in.entry->name);
      }
      if (!whole && transfer.in_dtype != out.dtype) transfer.half = recipe.half;
      if (in.entry->remainders) transfer.tensor = &in.entry->name;
      add(std::move(transfer), out, transfers);
    };
    if (blocks == nullptr) return add_exact(exact, std::nullopt);
    const ScaleBox values = scales.read(blocks->scales, blocks_of(exact, blocks->block),
                                        block_grid(entry.shape, blocks->block));
    for (const auto& [block, scale] : cut_by_block(exact, blocks->block, values, entry.shape)) {
      add_exact(block, scale);
    }
  });
}

void PlanCompiler::State::add_joined(uint32_t position, const Move& move, const OutPiece& out,
                                     std::vector<Transfer>& transfers) {
  const Entry& entry = plan.source->entries[position];
  for_each_piece(entry.remainders->upper, move, [&](const Located& in, const Move& exact) {
    for_each_piece(position, exact, [&](const Located& low, const Move& part) {
      Transfer remainders;
      Transfer transfer = transfer_of(part, *in.piece, *low.piece, out.piece, remainders);
      set_source(in, transfer);
      set_source(low, remainders);
      if (remainders.math.any()) {
        fail(ErrorKind::corrupt, "tensor {}: its remainders are a negated view", entry.name);
      }
      remainders.tensor = &entry.name;
      remainders.out_dtype = out.dtype;
      transfer.remainders = std::make_shared<const Transfer>(std::move(remainders));
      add(std::move(transfer), out, transfers);
    });
  });
}

std::vector<Transfer> PlanCompiler::compile(size_t target_entry, const Box& box) {
  const Entry& target = state_->plan.target.entries.at(target_entry);
  std::vector<Transfer> transfers;
  for (uint32_t position : state_->target(target_entry).index.overlapping(box)) {
    const Chunk& chunk = target.chunks[position];
    for (Piece& piece :
         cut_into_pieces(chunk, size_bytes(target.dtype), first_byte(chunk.extent))) {
      const Box region = intersection(piece.box, box);
      if (std::find(region.size.begin(), region.size.end(), 0) != region.size.end()) continue;
      const OutPiece out{std::move(piece), chunk.extent.file, target.dtype};
      state_->add_transfers(target_entry, region, out, transfers);
    }
  }
  return transfers;
}

std::vector<Transfer> PlanCompiler::compile_to_memory(size_t target_entry, const Box& box,
                                                      DType dtype, const Box& part) {
  OutPiece out{{box, 0, row_major_strides(box.size)}, 0, dtype};
  for (int64_t& stride : out.piece.strides) stride *= size_bytes(dtype);
  std::vector<Transfer> transfers;
  state_->add_transfers(target_entry, part, out, transfers);
  return transfers;
}

std::vector<Box> PlanCompiler::parts(size_t target_entry, const Box& box, uint64_t memory_bytes) {
  if (state_->plan.recipes.at(target_entry).scales.empty()) return {box};
  const double most = static_cast<double>(memory_bytes) / kBlockBytes;
  std::vector<Box> parts, work{box};
  while (!work.empty()) {
    Box part = std::move(work.back());
    work.pop_back();
    const bool is_one =
        std::all_of(part.size.begin(), part.size.end(), [](int64_t extent) { return extent <= 1; });
    if (is_one || state_->blocks(target_entry, part) <= most) {
      parts.push_back(std::move(part));
      continue;
    }
    // Along the axis that leaves the fewest blocks, an outer one if in doubt: its rows stay whole.
    std::pair<Box, Box> halves;
    double fewest = -1;
    for (size_t axis = 0; axis < part.size.size(); ++axis) {
      if (part.size[axis] <= 1) continue;
      std::pair<Box, Box> cut{part, part};
      cut.first.size[axis] /= 2;
      cut.second.offset[axis] += cut.first.size[axis];
      cut.second.size[axis] -= cut.first.size[axis];
      const double blocks = state_->blocks(target_entry, cut.second);
      if (fewest < 0 || blocks < fewest) halves = std::move(cut), fewest = blocks;
    }
    work.push_back(std::move(halves.second));  // in order
    work.push_back(std::move(halves.first));
  }
  return parts;
}

}  // namespace ferry
