#include "ckpt/core/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ckpt/base/box_index.h"
#include "ckpt/base/cast.h"
#include "ckpt/base/checked.h"
#include "ckpt/core/item_index.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/core/quantised.h"

namespace ferry {
namespace {

Box bounds_of(const Recipe& recipe, size_t part, size_t rank) {
  return part < recipe.moves.size() ? output_bounds(recipe.moves[part], rank)
                                    : recipe.zeros[part - recipe.moves.size()];
}

// Elements along an axis: runs of `length` from `first` on, each a multiple of `step` further on.
struct AxisRuns {
  int64_t first = 0, length = 1, step = 0;
};

// Where a move writes along an axis; no step where it does so in another way.
AxisRuns runs_along(const Move& move, int axis) {
  std::vector<Loop> loops;
  for (const Loop& loop : move.loops) {
    if (loop.out_axis == axis && loop.count > 1) loops.push_back(loop);
  }
  std::ranges::sort(loops, {}, &Loop::out_step);
  AxisRuns runs{move.out_origin[static_cast<size_t>(axis)]};
  for (const Loop& loop : loops) {
    if (runs.step == 0 && loop.out_step == runs.length) {
      runs.length *= loop.count;
    } else if (runs.step == 0 && loop.out_step > runs.length) {
      runs.step = loop.out_step;
    } else if (runs.step == 0 || loop.out_step % runs.step != 0) {
      return {};
    }
  }
  return runs;
}

// True when along some axis the runs of one move lie between those of the other, as gate and up do
// that are stored in turn, however many there are.
bool alternate(const Move& a, const Move& b, size_t rank) {
  for (size_t axis = 0; axis < rank; ++axis) {
    const AxisRuns one = runs_along(a, static_cast<int>(axis));
    const AxisRuns other = runs_along(b, static_cast<int>(axis));
    if (one.step == 0 || one.step != other.step) continue;
    const int64_t apart = ((other.first - one.first) % one.step + one.step) % one.step;
    if (apart >= one.length && one.step - apart >= other.length) return true;
  }
  return false;
}

// True when two parts of a recipe write a common element. Moves with strides may interleave without
// meeting; clipping one to single rows of the other would be exact but slow, so both are cut to the
// common box and, where elements remain of both, compared element class by element class.
bool collide(const Recipe& recipe, size_t a, size_t b, size_t rank) {
  const bool are_moves = std::max(a, b) < recipe.moves.size();
  if (are_moves && alternate(recipe.moves[a], recipe.moves[b], rank)) return false;
  const auto parts_in = [&](size_t part, const Box& box) -> std::vector<Move> {
    if (part < recipe.moves.size()) return clip_output(recipe.moves[part], box);
    const Box& zeros = recipe.zeros[part - recipe.moves.size()];
    return clip_output(copy_box(zeros, zeros.offset), box);
  };
  // Cut by the other's dense boxes: a move is dense where it has one loop an axis and steps of one.
  const auto dense_boxes = [&](size_t part) {
    std::vector<Box> boxes;
    std::vector<Move> work = parts_in(part, bounds_of(recipe, part, rank));
    while (!work.empty()) {
      Move move = std::move(work.back());
      work.pop_back();
      std::sort(move.loops.begin(), move.loops.end(),
                [](const Loop& x, const Loop& y) { return x.out_step < y.out_step; });
      Dims dense(rank, 1);
      bool split = false;
      for (size_t i = 0; i < move.loops.size() && !split; ++i) {
        const Loop loop = move.loops[i];
        if (loop.count == 1) continue;
        if (loop.out_step == dense[loop.out_axis]) {
          dense[loop.out_axis] *= loop.count;
          continue;
        }
        for (int64_t n = 0; n < loop.count; ++n) {
          Move one = move;
          one.out_origin[loop.out_axis] += n * loop.out_step;
          one.in_origin[loop.in_axis] += n * loop.in_step;
          one.loops[i].count = 1;
          work.push_back(std::move(one));
        }
        split = true;
      }
      if (!split) boxes.push_back({move.out_origin, dense});
    }
    return boxes;
  };
  for (const Box& box : dense_boxes(a)) {
    if (!parts_in(b, box).empty()) return true;
  }
  return false;
}

void check_addends(const Plan& plan, const Entry& target, const Recipe& recipe) {
  for (size_t i = 0; i < recipe.addends.size(); ++i) {
    const Addend& each = recipe.addends[i];
    const bool is_of_one_input =
        each.input < recipe.inputs.size() &&
        std::none_of(recipe.addends.begin(),
                     recipe.addends.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Addend& other) { return other.input == each.input; });
    if (!is_of_one_input) {
      fail(ErrorKind::internal, "tensor {}: an addend of no input, or a second one", target.name);
    }
    const Entry& input = plan.source->entries.at(recipe.inputs[each.input]);
    const bool is_plain = recipe.half == FloatHalf::whole && !recipe.quantise && !input.remainders;
    if (!is_plain || !is_floating_point(input.dtype) || !is_floating_point(target.dtype)) {
      fail(ErrorKind::unsupported,
           "tensor {}: {} would be added to the elements of {}, which are not plain floating-point "
           "numbers",
           target.name, each.value, input.name);
    }
  }
}

void check_dtypes(const Plan& plan, const Entry& source, const Entry& target,
                  const Recipe& recipe) {
  const FloatHalf half = recipe.half;
  const DType made = recipe.quantise ? recipe.quantise->values : target.dtype;
  bool fits = can_convert(source.dtype, made);
  if (half != FloatHalf::whole) {
    fits = can_convert(source.dtype, DType::f32) &&
           made == (half == FloatHalf::lower ? DType::i16 : DType::bf16);
  }
  if (!fits) {
    fail(ErrorKind::mismatch, "tensor {}: {} of {} cannot become {}", target.name,
         safetensors_name(source.dtype), source.name, safetensors_name(made));
  }
  if (!source.remainders) return;
  const auto& [stored, upper] = *source.remainders;
  if (upper >= plan.source->entries.size() || source.dtype != DType::f32 ||
      (stored != DType::i16 && stored != DType::f32) ||
      plan.source->entries[upper].dtype != DType::bf16 || plan.source->entries[upper].remainders ||
      plan.source->entries[upper].shape != source.shape) {
    fail(ErrorKind::internal, "tensor {}: remainders of no bf16 tensor of its shape", source.name);
  }
  if (half != FloatHalf::whole || made == DType::f32) return;
  fail(ErrorKind::mismatch,
       "tensor {}: {} is stored as remainders of a bf16 tensor, which make F32; it cannot be "
       "written as {}",
       target.name, source.name, safetensors_name(made));
}

void check_recipe(const Plan& plan, size_t position) {
  const Entry& target = plan.target.entries[position];
  const Recipe& recipe = plan.recipes[position];
  const Dims& shape = made_shape(target, recipe);
  const size_t rank = shape.size();
  if (recipe.is_scales) return;  // of check_quantised
  check_addends(plan, target, recipe);
  int64_t written = 0;
  for (const Move& move : recipe.moves) {
    if (move.input >= recipe.inputs.size() ||
        recipe.inputs[move.input] >= plan.source->entries.size()) {
      fail(ErrorKind::internal, "tensor {}: a move names an input that is not there", target.name);
    }
    const Entry& source = plan.source->entries[recipe.inputs[move.input]];
    check_dtypes(plan, source, target, recipe);
    if (source.quantised) check_quantised(source);
    const bool in_ok = move.in_origin.size() == source.shape.size() &&
                       is_inside(input_bounds(move, source.shape.size()), source.shape);
    if (!in_ok) {
      fail(ErrorKind::mismatch, "tensor {}: would read {} of {}, whose shape is {}", target.name,
           to_string(input_bounds(move, move.in_origin.size())), source.name,
           to_string(source.shape));
    }
    if (move.out_origin.size() != rank || !is_inside(output_bounds(move, rank), shape)) {
      fail(ErrorKind::mismatch, "tensor {}: {} would write outside its shape {}", target.name,
           source.name, to_string(shape));
    }
    written = checked_add(written, move.elements(), target.name);
  }
  for (const Box& zeros : recipe.zeros) {
    if (!is_inside(zeros, shape)) {
      fail(ErrorKind::mismatch, "tensor {}: zeros at {} are outside its shape {}", target.name,
           to_string(zeros), to_string(shape));
    }
    written = checked_add(written, element_count(zeros.size, target.name), target.name);
  }
  if (const int64_t elements = element_count(shape, target.name); written != elements) {
    fail(ErrorKind::mismatch, "tensor {} of shape {}: its sources hold {} of its {} elements",
         target.name, to_string(shape), written, elements);
  }
  const size_t parts = recipe.moves.size() + recipe.zeros.size();
  if (parts < 2) return;
  std::vector<Box> boxes;
  for (size_t part = 0; part < parts; ++part) boxes.push_back(bounds_of(recipe, part, rank));
  const BoxIndex index(boxes);
  for (uint32_t a = 0; a < parts; ++a) {
    for (uint32_t b : index.overlapping(boxes[a])) {
      if (b > a && collide(recipe, a, b, rank)) {
        fail(ErrorKind::mismatch, "tensor {}: {} would be written twice", target.name,
             to_string(boxes[b]));
      }
    }
  }
}

void require_inside_file(const Plan& plan, uint32_t file, uint64_t offset, uint64_t length,
                         const char* what) {
  if (file >= plan.target.files.size()) {
    fail(ErrorKind::internal, "{} is in file {} of {}", what, file, plan.target.files.size());
  }
  const FileInfo& info = plan.target.files[file];
  if (offset > info.bytes || length > info.bytes - offset) {
    fail(ErrorKind::internal, "{} of {} bytes at {} would be outside {}, which has {} bytes", what,
         length, offset, info.path, info.bytes);
  }
}

void check_files(const Plan& plan) {
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t, std::string>> ranges;
  for (const Entry& entry : plan.target.entries) {
    check_chunks(plan.target, entry);
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      const int64_t elements = chunk.elements(entry.name);
      if (extent.encoding != Encoding::raw || extent.zstd || extent.payload_offset != 0 ||
          extent.length != static_cast<uint64_t>(elements * size_bytes(entry.dtype))) {
        fail(ErrorKind::internal, "tensor {}: its target chunk is not a raw run of its bytes",
             entry.name);
      }
      if (extent.length) ranges.emplace_back(extent.file, extent.offset, extent.length, entry.name);
    }
  }
  for (const Literal& literal : plan.literals) {
    require_inside_file(plan, literal.file, literal.offset, literal.bytes.size(), "a header");
    ranges.emplace_back(literal.file, literal.offset, literal.bytes.size(), "a header");
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [file, offset, length, what] = ranges[i - 1];
    const auto& [next_file, next_offset, next_length, next_what] = ranges[i];
    if (file == next_file && offset + length > next_offset) {
      fail(ErrorKind::internal, "{} and {} would overlap in {}", what, next_what,
           plan.target.files[file].path);
    }
  }
}

// The first payload of an item that ends after `offset`; null when there is none.
const Item::Payload* payload_at(const Item& item, uint64_t offset) {
  const auto at = std::partition_point(
      item.payloads.begin(), item.payloads.end(),
      [&](const Item::Payload& payload) { return payload.offset + payload.length <= offset; });
  return at == item.payloads.end() ? nullptr : &*at;
}

// Payloads and the places of their CRC-32s must be inside the item, the places after their payload
// and in no other.
void check_payloads(const Plan& plan, const Item& item) {
  uint64_t end = item.offset;  // of the payloads so far
  const uint64_t item_end = item.offset + item.length;
  for (const Item::Payload& payload : item.payloads) {
    bool fits = payload.offset >= end && payload.offset <= item_end &&
                payload.length <= item_end - payload.offset;
    if (fits) end = payload.offset + payload.length;
    for (const uint64_t offset : payload.crc32_offsets) {
      fits = fits && offset >= end && offset <= item_end && item_end - offset >= 4;
      const Item::Payload* next = fits ? payload_at(item, offset) : nullptr;
      fits = fits && (!next || next->offset >= offset + 4);
    }
    if (fits) continue;
    fail(ErrorKind::internal,
         "{}: a payload of {} bytes at {} does not fit the item of {} bytes at {}",
         plan.target.files[item.file].path, payload.length, payload.offset, item.length,
         item.offset);
  }
}

// Bytes of the item that must contain a chunk at `offset`: a payload, or all of it where there are
// none.
std::pair<uint64_t, uint64_t> bounds_at(const Item& item, uint64_t offset) {
  const uint64_t end = item.offset + item.length;
  if (item.payloads.empty()) return {item.offset, end};
  const Item::Payload* payload = payload_at(item, offset);
  return payload ? std::pair(payload->offset, payload->offset + payload->length)
                 : std::pair(end, end);
}

void check_items(const Plan& plan) {
  for (const Item& item : plan.items) {
    require_inside_file(plan, item.file, item.offset, item.length, "an item");
    check_payloads(plan, item);
  }
  const ItemIndex index(plan.items);
  const std::vector<uint32_t>& order = index.in_order();
  for (size_t i = 1; i < order.size(); ++i) {
    const Item &item = plan.items[order[i - 1]], &next = plan.items[order[i]];
    if (item.file == next.file && item.offset + item.length > next.offset) {
      fail(ErrorKind::internal, "the items at {} and {} of {} overlap", item.offset, next.offset,
           plan.target.files[item.file].path);
    }
  }
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      if (extent.length == 0) continue;
      const auto found = index.find(extent.file, extent.offset, extent.length);
      if (!found) continue;
      const Item& item = plan.items[*found];
      const auto [begin, end] = bounds_at(item, extent.offset);
      if (extent.offset < begin || extent.offset + extent.length > end) {
        fail(ErrorKind::internal,
             "tensor {}: {} bytes at {} of {} cross the bounds of an item ({} to {})", entry.name,
             extent.length, extent.offset, plan.target.files[extent.file].path, begin, end);
      }
    }
  }
}

void check_use(const Plan& plan) {
  std::vector<int64_t> used(plan.source->entries.size());
  for (const Recipe& recipe : plan.recipes) {
    for (const Move& move : recipe.moves) used[recipe.inputs[move.input]] += move.elements();
  }
  for (const Dropped& dropped : plan.dropped) used.at(dropped.entry) += dropped.elements;
  for (size_t i = 0; i < used.size(); ++i) {
    const Entry& entry = plan.source->entries[i];
    if (used[i] == entry.elements()) continue;
    fail(ErrorKind::mismatch, "tensor {} of shape {}: the target uses {} of its {} elements",
         entry.name, to_string(entry.shape), used[i], entry.elements());
  }
}

}  // namespace

uint64_t Plan::target_bytes() const {
  uint64_t bytes = 0;
  for (const FileInfo& file : target.files) bytes += file.bytes;
  return bytes;
}

void drop_unused(Plan& plan, Role role) {
  std::vector<bool> used(plan.source->entries.size());
  for (const Recipe& recipe : plan.recipes) {
    for (const Move& move : recipe.moves) used[recipe.inputs[move.input]] = true;
  }
  for (const Dropped& dropped : plan.dropped) used.at(dropped.entry) = true;
  for (uint32_t i = 0; i < used.size(); ++i) {
    const Entry& entry = plan.source->entries[i];
    if (!used[i] && entry.role == role) plan.dropped.push_back({i, entry.elements()});
  }
}

namespace {

void check_target(const Plan& plan) {
  if (plan.recipes.size() != plan.target.entries.size()) {
    fail(ErrorKind::internal, "a plan has {} recipes for {} tensors", plan.recipes.size(),
         plan.target.entries.size());
  }
  for (size_t i = 0; i < plan.recipes.size(); ++i) check_recipe(plan, i);
  check_quantised(plan);
  check_files(plan);
  check_items(plan);
}

// That the chunks of a source entry hold all that a move reads.
void check_held(const Entry& source, const Move& move) {
  if (source.quantised) return;  // its parts are whole
  const auto bounds = input_bounds(move, source.shape.size());
  int64_t held = 0;
  for (const Chunk& chunk : source.chunks) {
    if (!overlaps(chunk.box, bounds)) continue;
    for (const FilledBox& filled : filled_boxes(chunk)) {
      for (const Move& part : clip_input(move, filled.box)) held += part.elements();
    }
  }
  if (held == move.elements()) return;
  fail(ErrorKind::invalid, "tensor {}: of {} elements in {}, which this rank writes, it gives {}",
       source.name, move.elements(), to_string(bounds), held);
}

}  // namespace

void check(const Plan& plan) {
  check_target(plan);
  check_use(plan);
}

void check_part(const Plan& part) {
  check_target(part);
  for (const Recipe& recipe : part.recipes) {
    for (const Move& move : recipe.moves) {
      check_held(part.source->entries[recipe.inputs[move.input]], move);
    }
  }
}

}  // namespace ferry
