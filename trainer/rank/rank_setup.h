// What the rank of a run is given: its place among the ranks, files, and where its lines go.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "trainer/communicator/links.h"
#include "trainer/loop/exit_watch.h"
#include "trainer/rank/rank_device.h"

namespace ferry {

struct RankSetup {
  std::shared_ptr<Group> group;  // of all ranks
  std::shared_ptr<Links> links;  // of the same
  std::shared_ptr<const FileSystem> files;
  const ExitWatch* exit_watch = nullptr;  // may be shared by ranks of a process
  int threads = 1;                        // of this rank's kernels
  /// Takes whole lines; rank 0 prints what is told once, the last rank what is told of iterations.
  std::function<void(std::string_view text)> print;
  /// The same of warnings, which go to standard error; null: `print` takes them, too.
  std::function<void(std::string_view text)> print_warning = {};
  /// Opens what the rank computes with, on the rank's own thread; null: host_device().
  std::function<RankDevice()> open_device = {};

  RankDevice device() const { return open_device ? open_device() : host_device(links, threads); }
};

}  // namespace ferry
