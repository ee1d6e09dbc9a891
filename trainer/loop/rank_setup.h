// What the rank of a run is given: its place among the ranks, files, and where its lines go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/stager.h"
#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/communicator/links.h"
#include "trainer/schedule/exit.h"

namespace ferry {

// What one rank computes with, and how it talks to the others.

struct RankDevice {
  std::unique_ptr<kernels::Kernels> kernels;
  MakeCommunicator make_communicator;  // refers to `kernels`
  /// How its memory is copied aside to be saved, and loaded; null where the host may use it as it
  /// is.
  std::shared_ptr<Stager> stager;
  /// Most bytes that its memory took so far; 0 where it is the host's.
  std::function<int64_t()> peak_bytes;
};

/// The processor, with `threads` threads.
RankDevice host_device(std::shared_ptr<Links> links, int threads);

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
