// Checkpoints as NeMo 2's ModelCheckpoint leaves them: folders with weights/ and context/, the best
// ones by a monitored value, and the last one.
//
// Source: NeMo 2 lightning/pytorch/callbacks/model_checkpoint.py.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "metric_tracker.h"
#include "nemo/config.h"
#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/run_checkpoint.h"

namespace ferry::mnist {

struct NemoCheckpointOptions {
  std::string folder;                          // .../checkpoints
  std::string run = "example";                 // what names begin with
  std::string monitor = "reduced_train_loss";  // of the tracker; lower is better
  size_t save_top_k = 3;
  bool save_last = true;
  int64_t samples_per_epoch = 1;
};

/// One of each rank. While a folder is written or removed its marker is next to it; what a
/// killed run leaves with one is removed by the next run's first save.
class NemoCheckpoints final : public CheckpointSink {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// References must outlive it. `print` is for rank 0.
  NemoCheckpoints(const TrainArguments& arguments, const Config& config,
                  const MetricTracker& tracker, std::shared_ptr<const FileSystem> files,
                  Group& group, NemoCheckpointOptions options, Print print);

  void save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) override;

 private:
  void find_former();
  void write(const std::string& name, const std::vector<ConstRegion>& tensors,
             const RunState& state);
  void remove(const std::string& name);
  bool is_among_best(double value) const;

  const TrainArguments& arguments_;
  const Config& config_;
  const MetricTracker& tracker_;
  std::shared_ptr<const FileSystem> files_;
  Group& group_;
  NemoCheckpointOptions options_;
  Print print_;
  bool knows_former_ = false;
  std::vector<std::pair<double, std::string>> best_;  // values and names
  std::vector<std::string> lasts_;
};

/// What a run begins with; all ranks call it alike. `weights_only`: of a run that begins anew with
/// a model, where parameters that begin with one of `skipped_prefixes` are not asked for.
std::unique_ptr<const Source> open_nemo_source(const std::shared_ptr<const FileSystem>& files,
                                               Group& group, const std::string& path,
                                               bool weights_only,
                                               std::vector<std::string> skipped_prefixes);

}  // namespace ferry::mnist
