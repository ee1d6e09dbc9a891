// What one rank computes with, and how it talks to the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ckpt/memory/stager.h"
#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/communicator/links.h"

namespace ferry {

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

}  // namespace ferry
