// One rank of a training run of any model, from start to end.
//
//   RankParts parts;
//   parts.make_model = [&] { return std::make_unique<MyModel>(arguments, setup); };
//   train(arguments, setup, parts);
//
// All ranks of a run call it, as threads of one process (on_rank_threads()) or as processes. It
// steps, evaluates, saves, stops and logs as Megatron-LM does for the same arguments (the headers
// of trainer/schedule and trainer/log name the sources).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// The model to train, and replacements for parts of `ferry train`.
struct RankParts {
  /// Called on the rank's own thread.
  std::function<std::unique_ptr<TrainedModel>()> make_model;
  /// Makes the destination of checkpoints; null: a run folder (--save), see run_folder_sink.h.
  /// `log` prints on rank 0.
  std::function<std::unique_ptr<CheckpointSink>(std::function<void(std::string_view text)> log)>
      make_sink = {};
  RunObserver* observer = nullptr;  // may be null
};

/// How a run ended without an error: with all iterations done, or stopped before (by a signal, a
/// trigger, --exit-interval, ...).
enum class RunEnd : uint8_t { finished, stopped };

/// Trains as `arguments`, which must be complete, describe, and returns when the run has finished
/// or was stopped, on all ranks alike; all saves are on disk then. An error on any rank is thrown
/// on all ranks.
RunEnd train(const TrainArguments& arguments, const RankSetup& setup, const RankParts& parts);

/// Calls work(rank, group, links) for each rank on its own thread. Throws the first error after all
/// have ended.
void on_rank_threads(int ranks,
                     const std::function<void(int rank, const std::shared_ptr<Group>& group,
                                              const std::shared_ptr<Links>& links)>& work);

}  // namespace ferry
