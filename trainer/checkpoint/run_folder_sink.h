// Writes a run's checkpoints into run folders and removes old ones.
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

/// The folder of non-persistent checkpoints of the run in the folder `run`; empty if it has none.
std::string non_persistent_folder(const TrainArguments& arguments, const std::string& run);

/// One per rank; all ranks make the same calls. Persistent checkpoints go to --save, others to
/// their own folder, which keeps only the last one. With --async-save, a save returns once memory
/// has been copied and writes during the next steps.
class RunFolderSink final : public CheckpointSink {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// Splits `group` for each folder. busy while another run saves in one of them. `stager` is
  /// RankDevice::stager. `print` is called on rank 0.
  RunFolderSink(const TrainArguments& arguments, std::shared_ptr<const FileSystem> files,
                Group& group, std::shared_ptr<Stager> stager, Print print);
  ~RunFolderSink() override;

  /// Allocates staging buffers for these regions during the first steps. Warns about iterations in
  /// --save outside this run's history.
  void prepare(std::span<const ConstRegion> regions, const std::string& loaded) override;
  /// This and the next three functions throw the error of an earlier save once later scheduled
  /// saves are on disk: these may be all that is left of the run.
  void save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) override;
  void save(SaveKind kind, Snapshot snapshot);
  void wait_for_copy() override;
  /// Also logs them on rank 0 and removes what --save-retain-interval and --keep-last do not keep.
  std::vector<int64_t> take_committed() override;
  void finish() override;

 private:
  struct Folder;
  Folder& folder(SaveKind kind);
  std::unique_ptr<Folder> make_folder(const std::string& path, bool is_persistent);
  bool stages() const { return arguments_.async_save || stager_; }
  void open_savers(std::span<const ConstRegion> regions);
  void complete_saves_on_error(const std::function<void()>& wait);
  void finish_quietly(Folder& folder);
  void finish(Folder& folder);
  void report_pieces(const Folder& folder);
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
  bool has_reported_pieces_ = false;
  std::vector<int64_t> committed_;
  std::unique_ptr<SaveHook> hook_;  // rank 0's, with --after-save
  std::jthread pruner_;             // rank 0's
};

}  // namespace ferry
