#include "ckpt/memory/tensor_set.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/core/plan_quantised.h"
#include "ckpt/engine/transfers/transfer.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/memory/load_plan.h"

namespace ferry {
namespace {

Catalog entries_of(std::vector<StateTensor>& tensors) {
  Catalog made;
  made.entries.reserve(tensors.size());
  for (StateTensor& tensor : tensors) {
    made.entries.push_back(
        {std::move(tensor.name), tensor.dtype, std::move(tensor.shape), {}, tensor.role});
  }
  return made;
}

std::vector<Recipe> recipes_of(std::vector<StateTensor>& tensors) {
  std::vector<Recipe> recipes;
  recipes.reserve(tensors.size());
  for (StateTensor& tensor : tensors) recipes.push_back(std::move(tensor.recipe));
  return recipes;
}

}  // namespace

TensorSet::State::State(SharedCatalog source, std::vector<StateTensor> tensors,
                        std::shared_ptr<const void> memory)
    : source_(std::move(source)),
      made_(entries_of(tensors)),
      recipes_(recipes_of(tensors)),
      index_(made_),
      memory_(std::move(memory)) {
  std::map<uint32_t, size_t> shared;  // units by what their weights have together
  for (size_t i = 0; i < recipes_.size(); ++i) {
    const auto& how = recipes_[i].quantise;
    if (!how) continue;
    size_t unit = units_.size();
    if (needs_largest(how->rule)) unit = shared.try_emplace(how->together, unit).first->second;
    if (unit == units_.size()) units_.emplace_back();
    units_[unit].push_back(i);
    units_[unit].insert(units_[unit].end(), how->parts.begin(), how->parts.end());
  }
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    std::ranges::sort(units_[unit]);
    for (const size_t position : units_[unit]) unit_of_[position] = unit;
  }
}

size_t TensorSet::State::position_of(std::string_view name) const {
  const Entry* const entry = find(name);
  if (entry == nullptr && !recipes_.empty()) {
    fail(ErrorKind::not_found, "the model has no tensor {}, but {} others, such as {}", name,
         entries().size(), entries().front().name);
  }
  if (entry == nullptr) {
    fail(ErrorKind::not_found, "the checkpoint has no tensor {}; inspect with {} lists what it has",
         name, option("tensors"));
  }
  return static_cast<size_t>(entry - entries().data());
}

Recipe TensorSet::State::recipe(size_t position) const {
  if (!recipes_.empty()) return recipes_.at(position);
  return {{static_cast<uint32_t>(position)}, {copy_all(entries().at(position).shape)}, {}};
}

const std::vector<size_t>* TensorSet::State::together(size_t position) const {
  const auto found = unit_of_.find(position);
  return found == unit_of_.end() ? nullptr : &units_[found->second];
}

std::shared_ptr<PrivateMapping> TensorSet::State::mapping(uint32_t file) const {
  const FileInfo& info = source_->files.at(file);
  if (info.memory != nullptr || !source_->file_system) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = mappings_.try_emplace(file);
  if (is_new) at->second = map_privately(*source_->file_system->open(info.path));
  return at->second;
}

TensorSet::TensorSet(const Checkpoint& checkpoint)
    : state_(std::make_shared<const State>(checkpoint.catalog)) {}

std::span<const Entry> TensorSet::tensors() const noexcept { return state_->entries(); }

const Entry* TensorSet::find(std::string_view name) const { return state_->find(name); }

std::optional<OwnedTensor> TensorSet::map(std::string_view name) const {
  const size_t position = state_->position_of(name);
  const Entry& entry = state_->entries()[position];
  const std::optional<FileRun> run = stored_run(*state_, position);
  if (!run || run->offset % static_cast<uint64_t>(size_bytes(entry.dtype)) != 0)
    return std::nullopt;
  std::shared_ptr<PrivateMapping> mapping = state_->mapping(run->file);
  if (!mapping) return std::nullopt;
  check_reader_locks(state_->source()->reader_locks);
  return OwnedTensor{entry.name, entry.dtype, entry.shape, mapping->part(run->offset, run->bytes),
                     mapping};
}

TensorSet made_tensors(SharedCatalog source, std::vector<StateTensor> tensors,
                       std::shared_ptr<const void> memory) {
  return TensorSet(std::make_shared<const TensorSet::State>(std::move(source), std::move(tensors),
                                                            std::move(memory)));
}

}  // namespace ferry
