// A run's checkpoints on their way to disk, and those that go again.
//
// Source: Megatron-LM megatron/training/checkpointing.py (save_checkpoint), async_utils.py.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ckpt/memory/async_saver.h"
#include "ckpt/store/retention.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/save_hook.h"
#include "trainer/checkpoint/staging_memory.h"

namespace ferry {

/// Where non-persistent checkpoints lie of the run in the folder `run`; empty: it has none.
std::string non_persistent_folder(const TrainArguments& arguments, const std::string& run);

/// One of each rank; all ranks call it alike. Persistent checkpoints go to --save, the others to a
/// folder of their own, where the last one stays. With --async-save a save is over when the memory
/// has been copied, and the rest goes on beside the next steps.
class RunFolderSink final : public CheckpointSink {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// Splits `group` for each folder. busy while another run saves in one of them. `stager`: as a
  /// RankDevice has it. `print` is for rank 0.
  RunFolderSink(const TrainArguments& arguments, std::shared_ptr<const FileSystem> files, Group& group,
           std::shared_ptr<Stager> stager, Print print);
  ~RunFolderSink() override;

  /// Takes what asynchronous saves of such regions need, beside the first steps.
  /// Tells of iterations of --save that the run does not go on from.
  void prepare(std::span<const ConstRegion> regions, const std::string& loaded) override;
  /// An earlier save that failed is thrown here, or by the next three, once what was scheduled
  /// after it is on disk: it may be all that is left of the run.
  void save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) override;
  void save(SaveKind kind, Snapshot snapshot);
  void wait_for_copy() override;
  /// Tells them on rank 0, too, and removes what --save-retain-interval and --keep-last do not
  /// keep.
  std::vector<int64_t> take_committed() override;
  void finish() override;

 private:
  struct Folder;
  Folder& folder(SaveKind kind);
  std::unique_ptr<Folder> make_folder(const std::string& path, bool is_persistent);
  bool stages() const { return arguments_.async_save || stager_; }
  void open_savers(std::span<const ConstRegion> regions);
  void or_settle(const std::function<void()>& wait);
  void settle(Folder& folder);
  void finish(Folder& folder);
  void tell_of_pieces(const Folder& folder);
  void commit(Folder& folder, int64_t iteration);
  void find_others(Folder& folder, const std::string& loaded);
  void prune(const Folder& folder, const ProblemOf& reason_to_stay) const;
  void make_room(const Folder& folder);

  const TrainArguments& arguments_;
  std::shared_ptr<const FileSystem> files_;
  Group& group_;
  std::shared_ptr<Stager> stager_;
  Print print_;
  std::unique_ptr<Folder> persistent_, other_;
  std::optional<StagingRoom> room_;  // once the savers are open
  bool has_told_of_pieces_ = false;
  std::vector<int64_t> committed_;
  std::unique_ptr<SaveHook> hook_;  // rank 0's, with --after-save
  std::jthread pruner_;             // rank 0's
};

}  // namespace ferry
