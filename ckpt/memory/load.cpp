#include "ckpt/memory/load.h"

#include <memory>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/core/recipe_cutter.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/io/staging/read_mark.h"

namespace ferry {
namespace {

// Each region is a file, and an entry that is one chunk of it.
class LoadPlan {
 public:
  explicit LoadPlan(const Catalog& catalog) : catalog_(catalog), index_(catalog) {
    plan_.source = &catalog;
    left_.reserve(catalog.entries.size());
    for (const Entry& entry : catalog.entries) left_.push_back(entry.elements());
  }

  void add(const Region& region) {
    const uint64_t bytes = checked_bytes(region);
    const Entry& entry = source_of(region);
    const auto position = static_cast<uint32_t>(&entry - catalog_.entries.data());
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
                                    entry.role});
    const Recipe whole{{position}, {copy_all(entry.shape)}, {}};
    plan_.recipes.push_back(RecipeCutter(whole, entry.shape).cut(shard));
    left_[position] -= shard.elements(region.name);
  }

  void run(const EngineOptions& options) {
    for (uint32_t i = 0; i < left_.size(); ++i) plan_.dropped.push_back({i, left_[i]});
    check(plan_);
    std::vector<WritableFile*> files;
    for (const auto& file : files_) files.push_back(file.get());
    ferry::run(plan_, files, options);
  }

 private:
  const Entry& source_of(const Region& region) const {
    const Entry* entry = index_.find(region.name);
    if (!entry) {
      fail(ErrorKind::not_found,
           "the checkpoint has no tensor {}; `ferry inspect --tensors` lists "
           "what it has",
           region.name);
    }
    if (entry->shape != region.shape) {
      fail(ErrorKind::mismatch, "tensor {} has shape {} in the checkpoint and {} in memory",
           region.name, to_string(entry->shape), to_string(region.shape));
    }
    return *entry;
  }

  const Catalog& catalog_;
  const EntryIndex index_;
  Plan plan_;
  std::vector<std::unique_ptr<MemoryTarget>> files_;
  std::vector<int64_t> left_;  // elements of each source entry that no region takes
};

}  // namespace

void load(const Checkpoint& checkpoint, std::span<const Region> regions,
          const EngineOptions& options) {
  LoadPlan plan(checkpoint.catalog);
  for (const Region& region : regions) plan.add(region);
  plan.run(options);
  if (checkpoint.mark) checkpoint.mark->check();
}

}  // namespace ferry
