// One rank of a training run, from its arguments to its end.
//
// All ranks of a run call it alike, as threads of one process or as processes. What it prints and
// writes, and when it ends, is Megatron-LM's (trainer/loop/*.h say where from).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/communicator/links.h"
#include "trainer/loop/exit_watch.h"
#include "trainer/run/rank_device.h"

namespace ferry {

struct RankSetup {
  std::shared_ptr<Group> group;  // of all ranks
  std::shared_ptr<Links> links;  // of the same
  std::shared_ptr<const FileSystem> files;
  const ExitWatch* exit_watch = nullptr;  // may be shared by ranks of a process
  int threads = 1;                        // of this rank's kernels
  /// Takes whole lines; rank 0 prints what is told once, the last rank what is told of iterations.
  std::function<void(std::string_view text)> print;
  /// Opens what the rank computes with, on the rank's own thread; null: host_device().
  std::function<RankDevice()> open_device = {};
};

/// Trains as `arguments`, which are complete, say, and returns when the run is over or is told to
/// end; what it saved is on disk then. Throws what fails on any rank, on all ranks.
void train(const TrainArguments& arguments, const RankSetup& setup);

}  // namespace ferry
