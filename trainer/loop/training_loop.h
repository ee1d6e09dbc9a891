// One rank of a training run of any model, from its arguments to its end.
//
//   RankParts parts;
//   parts.make_model = [&] { return std::make_unique<MyModel>(arguments, setup); };
//   train(arguments, setup, parts);
//
// All ranks of a run call it alike, as threads of one process (on_rank_threads()) or as processes.
// When it steps, evaluates, saves and ends, and what it prints and writes, is Megatron-LM's, under
// Megatron-LM's arguments (the headers of trainer/schedule and trainer/log name the sources).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// What is trained, and what a program puts in place of what `ferry train` has.
struct RankParts {
  /// On the rank's own thread.
  std::function<std::unique_ptr<TrainedModel>()> make_model;
  /// Where checkpoints go; null: a run folder (--save), as run_folder_sink.h says. `tell` prints on rank 0.
  std::function<std::unique_ptr<CheckpointSink>(std::function<void(std::string_view text)> tell)>
      make_sink = {};
  RunObserver* observer = nullptr;  // may be null
};

/// How a run ended that did not fail: with all its iterations done, or told to end before (a
/// signal, a trigger, --exit-interval and the like).
enum class RunEnd : uint8_t { finished, stopped };

/// Trains as `arguments`, which are complete, say, and returns when the run is over or is told to
/// end, on all ranks alike; what it saved is on disk then. Throws what fails on any rank, on all
/// ranks.
RunEnd train(const TrainArguments& arguments, const RankSetup& setup, const RankParts& parts);

/// Calls work(rank, group, links) for each of so many ranks, which are threads of this process. The
/// first error is thrown when all have ended.
void on_rank_threads(int ranks,
                     const std::function<void(int rank, const std::shared_ptr<Group>& group,
                                              const std::shared_ptr<Links>& links)>& work);

}  // namespace ferry
