#include "ckpt/engine/transfers/transfer.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "ckpt/base/box_index.h"
#include "ckpt/base/error.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/elements/decode.h"
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

// A box by itself, row-major.
OutPiece in_memory(const Box& box, DType dtype) {
  OutPiece out{{box, 0, row_major_strides(box.size)}, 0, dtype};
  for (int64_t& stride : out.piece.strides) stride *= size_bytes(dtype);
  return out;
}

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
  if (!is_of_file() || in_dtype != out_dtype || addend != 0 || math.any() || remainders) return 0;
  if (half != FloatHalf::whole) return 0;
  const int64_t bytes = size_bytes(in_dtype);
  if (loops.empty()) return static_cast<uint64_t>(bytes);
  const Loop& last = loops.back();
  const bool contiguous = last.in_stride == bytes && last.out_stride == bytes;
  return static_cast<uint64_t>(contiguous ? last.count * bytes : 0);
}

struct PlanCompiler::State {
  State(const Plan& p, PlanCompiler& c) : plan(p), compiler(c) {}

  IndexedEntry& source(const Entry& entry);
  IndexedEntry& target(size_t position);
  const std::vector<Piece>& source_pieces(const Entry& entry, IndexedEntry& indexed,
                                          uint32_t chunk);
  template <typename Key>
  IndexedEntry& indexed(std::map<Key, IndexedEntry>& cache, Key key, const Entry& entry,
                        const Recipe& recipe);
  std::shared_ptr<const Decoder> decoder(const Quantised& form);
  void add_transfers(size_t target_entry, const Box& region, const OutPiece& out,
                     std::vector<Transfer>& transfers);
  template <typename Consume>
  void for_each_piece(const Entry& entry, const Move& move, const Consume& consume);
  void add_move(const Recipe& recipe, const Move& move, const OutPiece& out,
                std::vector<Transfer>& transfers);
  void add_quantised(const Entry& entry, const Recipe& recipe, const Move& move,
                     const OutPiece& out, std::vector<Transfer>& transfers);
  void add_joined(const Entry& entry, const Move& move, const OutPiece& out,
                  std::vector<Transfer>& transfers);

  const Plan& plan;
  PlanCompiler& compiler;
  std::mutex mutex;  // guards the caches; std::map keeps references valid while it grows
  std::map<const Entry*, IndexedEntry> sources;  // entries of the catalog, or parts of those
  std::map<size_t, IndexedEntry> targets;
  std::map<std::pair<Code, DType>, std::shared_ptr<const Decoder>> decoders;
};

template <typename Key>
IndexedEntry& PlanCompiler::State::indexed(std::map<Key, IndexedEntry>& cache, Key key,
                                           const Entry& entry, const Recipe& recipe) {
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = cache.try_emplace(key);
  if (is_new) {
    at->second.index = BoxIndex(chunk_boxes(entry));
    std::vector<Box> written;
    const size_t rank = made_shape(entry, recipe).size();
    for (const Move& move : recipe.moves) written.push_back(output_bounds(move, rank));
    at->second.moves = BoxIndex(written);
    at->second.located.resize(entry.chunks.size());
    at->second.pieces.resize(entry.chunks.size());
  }
  return at->second;
}

IndexedEntry& PlanCompiler::State::source(const Entry& entry) {
  return indexed(sources, &entry, entry, Recipe());
}

std::shared_ptr<const Decoder> PlanCompiler::State::decoder(const Quantised& form) {
  const std::lock_guard lock(mutex);
  auto& decoder = decoders[{form.code, form.codes.dtype}];
  if (!decoder) decoder = std::make_shared<const Decoder>(form.code, form.codes.dtype);
  return decoder;
}

IndexedEntry& PlanCompiler::State::target(size_t position) {
  return indexed(targets, position, plan.target.entries.at(position), plan.recipes.at(position));
}

const std::vector<Piece>& PlanCompiler::State::source_pieces(const Entry& entry,
                                                             IndexedEntry& indexed,
                                                             uint32_t chunk_index) {
  {
    const std::lock_guard lock(mutex);
    if (!indexed.pieces[chunk_index].empty()) return indexed.pieces[chunk_index];
  }
  const Catalog& catalog = *plan.source;
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

PlanCompiler::PlanCompiler(const Plan& plan) : state_(std::make_unique<State>(plan, *this)) {}
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
void PlanCompiler::State::for_each_piece(const Entry& entry, const Move& move,
                                         const Consume& consume) {
  IndexedEntry& index = source(entry);
  for (const uint32_t i : index.index.overlapping(input_bounds(move, entry.shape.size()))) {
    for (const Piece& piece : source_pieces(entry, index, i)) {
      const Located located{&entry, &index.located[i], &piece};
      for (const Move& part : clip_input(move, piece.box)) consume(located, part);
    }
  }
}

void PlanCompiler::State::add_move(const Recipe& recipe, const Move& move, const OutPiece& out,
                                   std::vector<Transfer>& transfers) {
  const Entry& entry = plan.source->entries[recipe.inputs.at(move.input)];
  const bool whole = recipe.half == FloatHalf::whole;
  if (entry.quantised) return add_quantised(entry, recipe, move, out, transfers);
  if (entry.remainders && whole) return add_joined(entry, move, out, transfers);
  // Either half of what is stored in two halves can be read.
  const bool upper = entry.remainders && recipe.half == FloatHalf::upper;
  const Entry& stored = upper ? plan.source->entries.at(entry.remainders->upper) : entry;
  for_each_piece(stored, move, [&](const Located& in, const Move& exact) {
    Transfer transfer = transfer_of(exact, *in.piece, out.piece);
    set_source(in, transfer);
    transfer.addend = recipe.added_to(move.input);
    if (transfer.addend != 0 && transfer.math.any()) {
      fail(ErrorKind::unsupported, "tensor {}: numbers are not added to a negated view",
           in.entry->name);
    }
    if (!whole && transfer.in_dtype != out.dtype) transfer.half = recipe.half;
    if (in.entry->remainders) transfer.tensor = &in.entry->name;
    add(std::move(transfer), out, transfers);
  });
}

void PlanCompiler::State::add_quantised(const Entry& entry, const Recipe& recipe, const Move& move,
                                        const OutPiece& out, std::vector<Transfer>& transfers) {
  const Quantised& form = *entry.quantised;
  QuantisedMove from{&entry, decoder(form), &compiler, move};
  Move& in = from.move;
  in.in_origin = form.in_codes(std::move(in.in_origin));
  std::erase_if(in.loops, [](const Loop& loop) { return loop.count == 1; });
  const auto last = static_cast<int>(entry.shape.size()) - 1;
  for (Loop& loop : in.loops) {
    if (form.transposed && loop.in_axis >= last - 1) loop.in_axis = 2 * last - 1 - loop.in_axis;
  }
  const auto out_stride = [&](const Loop& loop) {
    return loop.out_step * out.piece.strides[static_cast<size_t>(loop.out_axis)];
  };
  std::ranges::stable_sort(
      in.loops, [&](const Loop& a, const Loop& b) { return out_stride(a) > out_stride(b); });
  Transfer transfer;
  transfer.in_file = Transfer::kValues;
  transfer.in_dtype = entry.dtype;
  transfer.out_offset = byte_position(out.piece, move.out_origin);
  transfer.half = recipe.half;
  transfer.addend = recipe.added_to(move.input);
  for (const Loop& loop : in.loops) transfer.loops.push_back({loop.count, 0, out_stride(loop)});
  transfer.quantised = std::make_shared<const QuantisedMove>(std::move(from));
  add(std::move(transfer), out, transfers);
}

void PlanCompiler::State::add_joined(const Entry& entry, const Move& move, const OutPiece& out,
                                     std::vector<Transfer>& transfers) {
  const Entry& whole = plan.source->entries.at(entry.remainders->upper);
  for_each_piece(whole, move, [&](const Located& in, const Move& exact) {
    for_each_piece(entry, exact, [&](const Located& low, const Move& part) {
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
                                                      DType dtype) {
  std::vector<Transfer> transfers;
  state_->add_transfers(target_entry, box, in_memory(box, dtype), transfers);
  return transfers;
}

std::vector<Transfer> PlanCompiler::compile_stored(const Entry& entry, const Box& box,
                                                   DType dtype) {
  const OutPiece out = in_memory(box, dtype);
  std::vector<Transfer> transfers;
  state_->for_each_piece(entry, copy_box(box, box.offset),
                         [&](const Located& in, const Move& part) {
                           Transfer transfer = transfer_of(part, *in.piece, out.piece);
                           set_source(in, transfer);
                           add(std::move(transfer), out, transfers);
                         });
  return transfers;
}

}  // namespace ferry
