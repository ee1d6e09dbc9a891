#include "ckpt/memory/load_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

// A recipe, and what cuts it.
struct LoadPlan::Made {
  Made(Recipe made, const Dims& shape) : recipe(std::move(made)), cutter(recipe, shape) {}

  const Recipe recipe;
  const RecipeCutter cutter;
};

LoadPlan::LoadPlan(const TensorSet::State& tensors) : tensors_(tensors) {
  plan_.source = tensors.source();
}

LoadPlan::~LoadPlan() = default;

void LoadPlan::add(const Region& region) {
  const uint64_t bytes = checked_bytes(region);
  const size_t position = tensors_.position_of(region.name);
  const Entry& entry = tensors_.entries()[position];
  if (entry.shape != region.shape) {
    fail(ErrorKind::mismatch, "tensor {} has shape {} in the checkpoint and {} in memory",
         region.name, to_string(entry.shape), to_string(region.shape));
  }
  const bool is_whole = !region.shard.is_run() && region.shard.box == Box::whole(entry.shape) &&
                        region.dtype == entry.dtype && region.half == FloatHalf::whole;
  if (!is_whole && tensors_.together(position)) {
    fail(ErrorKind::unsupported,
         "tensor {} is quantised as it is read, and can only be read whole and as {}", entry.name,
         safetensors_name(entry.dtype));
  }
  add(position, region.shard, region.dtype, region.half, bytes,
      in_memory(region.name, {region.data, bytes}));
}

void LoadPlan::add(size_t position, WritableFile& file) {
  const Entry& entry = tensors_.entries()[position];
  add(position, {Box::whole(entry.shape)}, entry.dtype, FloatHalf::whole,
      static_cast<uint64_t>(entry.bytes()), file);
}

void LoadPlan::add(size_t position, const Shard& shard, DType dtype, FloatHalf half, uint64_t bytes,
                   WritableFile& file) {
  const Entry& entry = tensors_.entries()[position];
  const Dims shape = shard.is_run() ? Dims{shard.run_count} : shard.box.size;
  const auto number = static_cast<uint32_t>(files_.size());
  files_.push_back(&file);
  plan_.target.files.push_back({file.path(), bytes});
  plan_.target.entries.push_back(
      {entry.name, dtype, shape, {{{Box::whole(shape)}, {}, {number, 0, bytes}}}, entry.role});
  if (tensors_.together(position)) {
    plan_.recipes.push_back(tensors_.recipe(position));
    note_in_unit(position);
    return;
  }
  plan_.recipes.push_back(cutter(position).cut(shard));
  if (half != FloatHalf::whole) plan_.recipes.back().half = half;
}

const RecipeCutter& LoadPlan::cutter(size_t position) {
  std::unique_ptr<const Made>& made = made_[position];
  if (!made) {
    made =
        std::make_unique<const Made>(tensors_.recipe(position), tensors_.entries()[position].shape);
  }
  return made->cutter;
}

WritableFile& LoadPlan::in_memory(const std::string& name, std::span<std::byte> bytes) {
  own_files_.push_back(std::make_unique<MemoryTarget>("memory for tensor " + name, bytes));
  return *own_files_.back();
}

// Joins the tensor that was added last, which is at `position` of the set, with those that are made
// together with it, which were added before or will be.
void LoadPlan::note_in_unit(size_t position) {
  const auto added = static_cast<uint32_t>(plan_.recipes.size() - 1);
  const std::vector<size_t>* all = tensors_.together(position);
  if (units_[all].contains(position)) {  // asked for once more: the first time ends here
    std::vector<size_t> missing;
    std::ranges::copy_if(*all, std::back_inserter(missing),
                         [&](size_t other) { return !units_[all].contains(other); });
    for (const size_t other : missing) add_unasked(other);
  }
  Unit& unit = units_[all];
  unit[position] = added;
  if (unit.size() < all->size()) return;
  for (const auto& [of_set, of_plan] : unit) {
    auto& how = plan_.recipes[of_plan].quantise;
    if (!how) continue;
    for (uint32_t& part : how->parts) part = unit.at(part);
  }
  units_.erase(all);
}

void LoadPlan::add_unasked(size_t position) {
  const Entry& entry = tensors_.entries()[position];
  add(position,
      in_memory(entry.name, unasked_.emplace_back().take(static_cast<uint64_t>(entry.bytes()))));
}

const Plan& LoadPlan::finish() {
  while (!units_.empty()) {
    const auto& [all, unit] = *units_.begin();
    add_unasked(*std::ranges::find_if(
        *all, [&](size_t position) { return !units_.begin()->second.contains(position); }));
  }
  check_part(plan_);
  return plan_;
}

namespace {

// Whether all of a tensor may be in one piece, as far as that shows before any file is read.
bool may_be_one_run(const Catalog& source, const Recipe& recipe) {
  if (recipe.moves.size() != 1 || !recipe.zeros.empty()) return false;
  const Move& move = recipe.moves.front();
  const Entry& input = source.entries[recipe.inputs[move.input]];
  const Box bounds = input_bounds(move, input.shape.size());
  return std::ranges::count_if(
             input.chunks, [&](const Chunk& chunk) { return overlaps(chunk.box, bounds); }) == 1;
}

}  // namespace

std::optional<FileRun> stored_run(const TensorSet::State& tensors, size_t position) {
  const Entry& entry = tensors.entries()[position];
  const auto bytes = static_cast<uint64_t>(entry.bytes());
  if (bytes == 0 || tensors.together(position) ||
      !may_be_one_run(*tensors.source(), tensors.recipe(position))) {
    return std::nullopt;
  }
  MemoryTarget nothing("nothing", {});
  LoadPlan load(tensors);
  load.add(position, nothing);
  PlanCompiler compiler(load.finish());
  const std::vector<Transfer> transfers = compiler.compile(0, Box::whole(entry.shape));
  if (transfers.size() != 1 || transfers[0].zstd || transfers[0].run_bytes() != bytes) {
    return std::nullopt;
  }
  return FileRun{transfers[0].in_file, transfers[0].in_offset, bytes};
}

}  // namespace ferry
