// What a rank of a run is given: its place among the ranks, the file system, its device and its
// output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/region.h"
#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/communicator/links.h"
#include "trainer/schedule/exit.h"

namespace ferry {

// What a rank computes with, and how it communicates.

struct RankDevice {
  std::unique_ptr<kernels::Kernels> kernels;
  MakeCommunicator make_communicator;  // refers to `kernels`
  /// Copies device memory for saves and loads; null if the host can access it directly.
  std::shared_ptr<Stager> stager;
  /// Peak bytes of device memory so far; 0 for host memory.
  std::function<int64_t()> peak_bytes;
};

/// The CPU, with `threads` threads.
RankDevice host_device(std::shared_ptr<Links> links, int threads);

struct RankSetup {
  std::shared_ptr<Group> group;  // of all ranks
  std::shared_ptr<Links> links;  // of the same ranks
  std::shared_ptr<const FileSystem> files;
  const ExitWatch* exit_watch = nullptr;  // may be shared by a process's ranks
  int threads = 1;                        // of this rank's kernels
  /// Receives whole lines: general ones on rank 0, those of iterations on the last rank.
  std::function<void(std::string_view text)> print;
  /// The same for warnings, which go to standard error; if null, `print` gets them.
  std::function<void(std::string_view text)> print_warning = {};
  /// Opens the rank's device, on the rank's own thread; null: host_device().
  std::function<RankDevice()> open_device = {};

  RankDevice device() const { return open_device ? open_device() : host_device(links, threads); }
};

}  // namespace ferry
