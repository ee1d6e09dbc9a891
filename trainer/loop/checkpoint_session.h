// Loads the state that a run starts from, and saves its checkpoints.
#pragma once

#include <memory>

#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// One per rank; all ranks make the same calls. References must outlive it.
class CheckpointSession {
 public:
  /// A null `sink` stands for a RunFolderSink.
  CheckpointSession(const TrainArguments& arguments, const RankSetup& setup, TrainedModel& model,
                    RunLog& log, std::unique_ptr<CheckpointSink> sink);

  CheckpointSink& sink() { return *sink_; }

  /// Loads `source`, or initializes the model if it is null. Returns the run's position.
  RunPosition begin(std::unique_ptr<const Source> source);
  void save(SaveKind kind, RunPosition& position);
  /// Waits until all saves are on disk.
  void finish();

 private:
  void load(const Source& source, RunPosition& position);
  void go_by_samples(RunPosition& position);
  void log_committed();

  const TrainArguments& arguments_;
  Group& group_;
  TrainedModel& model_;
  RunLog& log_;
  SavedProgress saved_;
  std::unique_ptr<CheckpointSink> sink_;  // last: destroyed first, because it calls log_
};

}  // namespace ferry
