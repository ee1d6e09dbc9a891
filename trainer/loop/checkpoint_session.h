// What a run begins with, and what it saves.
#pragma once

#include <memory>

#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// One of each rank; all ranks call it alike. References must outlive it.
class CheckpointSession {
 public:
  /// `sink` null: a RunFolderSink.
  CheckpointSession(const TrainArguments& arguments, const RankSetup& setup, TrainedModel& model,
           RunLog& log, std::unique_ptr<CheckpointSink> sink);

  CheckpointSink& sink() { return *sink_; }

  /// The state that the run begins with: of `source`, or as the model begins by itself.
  RunPosition begin(std::unique_ptr<const Source> source);
  void save(SaveKind kind, RunPosition& position);
  /// Waits until all is on disk.
  void finish();

 private:
  void load(const Source& source, RunPosition& position);
  void go_by_samples(RunPosition& position);
  void tell_committed();

  const TrainArguments& arguments_;
  Group& group_;
  TrainedModel& model_;
  RunLog& log_;
  SavedProgress saved_;
  std::unique_ptr<CheckpointSink> sink_;  // last: it ends before what it is told
};

}  // namespace ferry
