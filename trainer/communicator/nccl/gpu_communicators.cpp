#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/wire.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry {
namespace {

using kernels::cuda::check;
using kernels::cuda::Device;

// Where a rank computes.
struct Seat {
  std::string process;  // unique over all hosts
  std::string gpu;      // likewise
  int index = 0;        // of the GPU, in the process
};

Seat own_seat(const Device& device) {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.index()), "querying the device");
  return {fmt::format("process {} of {}", ::getpid(), host.data()),
          std::string(properties.uuid.bytes, sizeof properties.uuid.bytes), device.index()};
}

std::vector<Seat> all_seats(Group& group, const Device& device) {
  const Seat own = own_seat(device);
  std::vector<Seat> seats;
  for (const std::string& bytes : group.exchange(Packer()
                                                     .text(own.process)
                                                     .text(own.gpu)
                                                     .number(static_cast<uint64_t>(own.index))
                                                     .take())) {
    Unpacker unpacker(bytes);
    Seat& seat = seats.emplace_back();
    seat.process = unpacker.text();
    seat.gpu = unpacker.text();
    seat.index = static_cast<int>(unpacker.number());
    unpacker.finish();
  }
  return seats;
}

// NCCL_P2P_DISABLE is meant to disable copies, too.
bool forbids_peers() {
  const char* const words = std::getenv("NCCL_P2P_DISABLE");
  return words != nullptr && std::atoi(words) != 0;
}

// Gives this rank's GPU access to the memory of the process's other GPUs. Returns one that it
// cannot access.
std::optional<int> read_other_gpus(const std::vector<Seat>& seats, const Device& device) {
  device.enter();
  for (const Seat& seat : seats) {
    if (seat.index == device.index()) continue;
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, device.index(), seat.index), "querying the devices");
    if (can == 0) return seat.index;
    const cudaError_t status = cudaDeviceEnablePeerAccess(seat.index, 0);
    if (status == cudaSuccess) continue;
    (void)cudaGetLastError();
    if (status == cudaErrorTooManyPeers) return seat.index;
    if (status == cudaErrorPeerAccessAlreadyEnabled) continue;
    check(status, "enabling peer access to another GPU");
  }
  return std::nullopt;
}

// Whether all GPUs can access each other's memory. The same result on all ranks.
bool read_each_other(Group& group, const std::vector<Seat>& seats, const Device& device) {
  const std::vector<std::string> all =
      group.exchange(read_other_gpus(seats, device) ? "no" : "yes");
  return std::ranges::all_of(all, [](const std::string& one) { return one == "yes"; });
}

}  // namespace

MakeCommunicator gpu_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                   kernels::cuda::CudaKernels& kernels,
                                   const NcclOptions& options) {
  if (group->size() == 1) return host_communicators(std::move(links), kernels);
  const std::vector<Seat> seats = all_seats(*group, kernels.device());
  std::vector<std::pair<size_t, size_t>> sharing;  // ranks
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    for (size_t before = 0; before < rank && sharing.empty(); ++before) {
      if (seats[before].gpu == seats[rank].gpu) sharing.emplace_back(before, rank);
    }
  }
  if (sharing.empty()) {
    NcclOptions known = options;
    known.copies = options.copies && links->are_threads() && !forbids_peers() &&
                   read_each_other(*group, seats, kernels.device());
    return nccl_communicators(std::move(group), std::move(links), kernels, known);
  }
  if (!links->are_threads()) {
    const auto [one, other] = sharing.front();
    fail(ErrorKind::unsupported,
         "ranks {} ({}) and {} ({}) share a GPU: start no more processes on a host than it has "
         "GPUs, or one process, whose ranks are threads",
         one, seats[one].process, other, seats[other].process);
  }
  if (const auto other = read_other_gpus(seats, kernels.device())) {
    fail(ErrorKind::unsupported,
         "ranks share GPUs, and GPU {} cannot access the memory of GPU {}; use one GPU, or one for "
         "each rank",
         kernels.device().index(), *other);
  }
  return host_communicators(std::move(links), kernels);
}

}  // namespace ferry
