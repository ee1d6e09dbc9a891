#include "ckpt/memory/load_plan.h"

#include <algorithm>
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
  if (!is_whole && tensors_.partner(position)) {
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
  if (tensors_.partner(position)) {
    plan_.recipes.push_back(tensors_.recipe(position));
    pair(position);
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

// Makes a pair of the tensor that was added last, which is at `position` of the set, and of one
// that was added before or will be.
void LoadPlan::pair(size_t position) {
  const auto added = static_cast<uint32_t>(plan_.recipes.size() - 1);
  const bool is_scales = plan_.recipes.back().is_scales;
  const size_t partner = *tensors_.partner(position), weights = is_scales ? partner : position;
  const auto place = is_scales ? &Pair::scales : &Pair::weights;
  if (pairs_[weights].*place) add_unasked(partner);  // asked for once more
  Pair& both = pairs_[weights];
  both.*place = added;
  if (!both.weights || !both.scales) return;
  plan_.recipes[*both.weights].quantise->scales = *both.scales;
  pairs_.erase(weights);
}

void LoadPlan::add_unasked(size_t position) {
  const Entry& entry = tensors_.entries()[position];
  add(position,
      in_memory(entry.name, unasked_.emplace_back().take(static_cast<uint64_t>(entry.bytes()))));
}

const Plan& LoadPlan::finish() {
  while (!pairs_.empty()) {
    const auto& [weights, one] = *pairs_.begin();
    add_unasked(one.weights ? *tensors_.partner(weights) : weights);
  }
  check_part(plan_);
  return plan_;
}

namespace {

// Whether all of a tensor may be in one piece, as far as that shows before any file is read.
bool may_be_one_run(const Catalog& source, const Recipe& recipe) {
  if (recipe.moves.size() != 1 || !recipe.zeros.empty() || !recipe.scales.empty()) return false;
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
  if (bytes == 0 || tensors.partner(position) ||
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
