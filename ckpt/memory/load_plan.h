// Plans that read tensors of a TensorSet into memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/core/recipe_cutter.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/tensor_set.h"

namespace ferry {

/// Each region is a file, and an entry that is one chunk of it.
class LoadPlan {
 public:
  /// `tensors` must outlive the plan.
  explicit LoadPlan(const TensorSet::State& tensors);
  ~LoadPlan();

  /// Errors as load(), but for the names.
  void add(const Region& region);
  /// All of the tensor at `position`, into a file that must outlive the plan.
  void add(size_t position, WritableFile& file);

  /// The plan and its files, once all is added; checked.
  const Plan& finish();
  const std::vector<WritableFile*>& files() const noexcept { return files_; }

 private:
  struct Made;
  // Target positions of tensors that one run of the engine makes together, by those in the set.
  using Unit = std::map<size_t, uint32_t>;

  void add(size_t position, const Shard& shard, DType dtype, FloatHalf half, uint64_t bytes,
           WritableFile& file);
  const RecipeCutter& cutter(size_t position);
  WritableFile& in_memory(const std::string& name, std::span<std::byte> bytes);
  void note_in_unit(size_t position);
  void add_unasked(size_t position);

  const TensorSet::State& tensors_;
  Plan plan_;
  std::vector<WritableFile*> files_;
  std::vector<std::unique_ptr<WritableFile>> own_files_;
  std::vector<Buffer> unasked_;  // parts of units that nobody asked for
  std::unordered_map<size_t, std::unique_ptr<const Made>> made_;
  std::map<const std::vector<size_t>*, Unit> units_;  // that lack one
};

/// Bytes of a file.
struct FileRun {
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};

/// Where all of a tensor's elements are stored one after another as they are; nothing when they are
/// not, or when there are none.
std::optional<FileRun> stored_run(const TensorSet::State& tensors, size_t position);

}  // namespace ferry
