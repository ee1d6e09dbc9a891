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
  // Target positions of weights and of their scales, which one run of the engine makes together.
  struct Pair {
    std::optional<uint32_t> weights, scales;
  };

  void add(size_t position, const Shard& shard, DType dtype, FloatHalf half, uint64_t bytes,
           WritableFile& file);
  const RecipeCutter& cutter(size_t position);
  WritableFile& in_memory(const std::string& name, std::span<std::byte> bytes);
  void pair(size_t position);
  void add_unasked(size_t position);

  const TensorSet::State& tensors_;
  Plan plan_;
  std::vector<WritableFile*> files_;
  std::vector<std::unique_ptr<WritableFile>> own_files_;
  std::vector<Buffer> unasked_;  // halves of pairs that nobody asked for
  std::unordered_map<size_t, std::unique_ptr<const Made>> made_;
  std::map<size_t, Pair> pairs_;  // that lack one, by the position of the weights
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
