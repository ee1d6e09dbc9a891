// ferry train: trains a language model under Megatron-LM's arguments.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ckpt/group/group.h"
#include "tools/help/description.h"
#include "trainer/communicator/links.h"
#include "trainer/loop/rank_setup.h"

namespace ferry::tool {

/// What the launcher and the environment say of a run's ranks.
struct TrainLaunch {
  /// All processes of the launch. Joined once.
  std::function<std::shared_ptr<Group>()> processes;
  /// Between them.
  std::function<std::shared_ptr<Links>(const std::shared_ptr<Group>&)> links;
  std::function<std::string(int processes)> launcher;  // that started so many
  /// GPUs that this process may use, and one of them for a rank (trainer/gpu/gpu_device.h).
  std::function<int()> gpu_count;
  std::function<RankDevice(const std::shared_ptr<Group>&, std::shared_ptr<Links>, int gpu,
                           bool uses_cudnn)>
      gpu_device;
  const char* threads = nullptr;  // OMP_NUM_THREADS, null where it is not set
};

/// Begins the program once more where the environment does not say how threads wait for each other:
/// OpenMP reads that before main() does. By default they spin for milliseconds, which takes the
/// processor from who they wait for where other programs compute on it, too. `argv` as main() has
/// it. First thing in main(); returns where there is nothing to do, or it cannot be done.
void start_with_short_spins(char** argv) noexcept;

/// Lets streams of a GPU overlap, whatever the environment has for Megatron-LM
/// (CUDA_DEVICE_MAX_CONNECTIONS=1). Call it before CUDA is used and before there are threads.
void let_streams_overlap() noexcept;

/// What `ferry train --help` says.
CommandDescription describe_train();

/// `words` are its arguments. Ranks are the processes of the launch or, where this one is alone,
/// its threads. Returns when training is over: the program's exit code, which is 0 but for
/// --stopped-exit-code.
int run_train(std::span<const std::string> words, const TrainLaunch& launch);

}  // namespace ferry::tool
