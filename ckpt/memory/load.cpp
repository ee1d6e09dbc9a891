#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/option_name.h"
#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe_cutter.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/run.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/run_state_memory.h"

namespace ferry {
namespace {

// Each region is a file, and an entry that is one chunk of it.
class LoadPlan {
 public:
  explicit LoadPlan(SharedCatalog source) { plan_.source = std::move(source); }

  void add(const Region& region, const StateTensor& tensor) {
    const uint64_t bytes = checked_bytes(region);
    if (tensor.shape != region.shape) {
      fail(ErrorKind::mismatch, "tensor {} has shape {} in the checkpoint and {} in memory",
           region.name, to_string(tensor.shape), to_string(region.shape));
    }
    const auto file = static_cast<uint32_t>(files_.size());
    const Shard& shard = region.shard;
    const Dims shape = shard.is_run() ? Dims{shard.run_count} : shard.box.size;
    files_.push_back(std::make_unique<MemoryTarget>("memory for tensor " + region.name,
                                                    std::span(region.data, bytes)));
    plan_.target.files.push_back({files_.back()->path(), bytes});
    plan_.target.entries.push_back({region.name,
                                    region.dtype,
                                    shape,
                                    {{{Box::whole(shape)}, {}, {file, 0, bytes}}},
                                    tensor.role});
    auto cutter = cutters_.find(&tensor);
    if (cutter == cutters_.end()) {
      cutter = cutters_.try_emplace(&tensor, tensor.recipe, tensor.shape).first;
    }
    plan_.recipes.push_back(cutter->second.cut(shard));
    if (region.half != FloatHalf::whole) plan_.recipes.back().half = region.half;
  }

  void run(const EngineOptions& options) {
    check_part(plan_);
    std::vector<WritableFile*> files;
    for (const auto& file : files_) files.push_back(file.get());
    ferry::run(plan_, files, options);
  }

 private:
  Plan plan_;
  std::unordered_map<const StateTensor*, RecipeCutter> cutters_;
  std::vector<std::unique_ptr<MemoryTarget>> files_;
};

[[noreturn]] void fail_not_there(const std::string& name) {
  fail(ErrorKind::not_found, "the checkpoint has no tensor {}; inspect with {} lists what it has",
       name, option("tensors"));
}

}  // namespace

void load(const Checkpoint& checkpoint, std::span<const Region> regions,
          const EngineOptions& options) {
  const EntryIndex index(checkpoint.catalog);
  std::map<const Entry*, StateTensor> tensors;  // as they are stored
  LoadPlan plan(checkpoint.catalog);
  for (const Region& region : regions) {
    const Entry* const entry = index.find(region.name);
    if (entry == nullptr) fail_not_there(region.name);
    auto tensor = tensors.find(entry);
    if (tensor == tensors.end()) {
      const auto position = static_cast<uint32_t>(entry - checkpoint.catalog->entries.data());
      const Recipe whole{{position}, {copy_all(entry->shape)}, {}};
      tensor = tensors
                   .try_emplace(entry, StateTensor{entry->name, entry->dtype, entry->shape, whole,
                                                   entry->role})
                   .first;
    }
    plan.add(region, tensor->second);
  }
  plan.run(options);
  check_reader_locks(checkpoint.catalog->reader_locks);
}

void load(const Checkpoint& checkpoint, const RunState& state, std::span<const Region> regions,
          const EngineOptions& options) {
  std::unordered_map<std::string_view, const StateTensor*> tensors;
  for (const StateTensor& tensor : state.tensors) tensors.emplace(tensor.name, &tensor);
  LoadPlan plan(checkpoint.catalog);
  for (const Region& region : regions) {
    const auto tensor = tensors.find(region.name);
    if (tensor == tensors.end()) fail_not_there(region.name);
    plan.add(region, *tensor->second);
  }
  plan.run(options);
  check_reader_locks(checkpoint.catalog->reader_locks);
}

}  // namespace ferry
