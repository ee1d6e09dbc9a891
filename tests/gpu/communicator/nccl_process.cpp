// One rank of a run whose ranks are processes: nccl_process FOLDER RANK SIZE [kill].
//
// Sums over all ranks; with `kill` the last rank kills itself while the others wait for it on
// their GPUs. Prints what happened, and succeeds where the sums are right.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "tests/gpu/communicator/file_ranks.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry::test {
namespace {

constexpr int64_t kCount = 5'000'000;

void sum(Communicator& ranks, kernels::cuda::CudaKernels& kernels, void* memory, bool kills) {
  std::vector<float> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>((ranks.rank() + 1) * (i % 1000));
  }
  const std::vector<float> own = x;
  for (int round = 0; round < 10; ++round) {
    if (round == 5 && kills && ranks.rank() == ranks.size() - 1) (void)std::raise(SIGKILL);
    kernels.upload(own.data(), memory, sizeof(float) * own.size());
    ranks.wait(ranks.all_reduce(kernels::Array(static_cast<float*>(memory)), kCount));
    kernels.download(memory, x.data(), sizeof(float) * x.size());
    kernels.wait();
  }
  double one = 1;
  ranks.add_numbers({&one, 1});
  const int all = ranks.size() * (ranks.size() + 1) / 2;
  for (int64_t i = 0; i < kCount; ++i) {
    if (x[static_cast<size_t>(i)] != static_cast<float>(all * (i % 1000)) || one != ranks.size()) {
      fail(ErrorKind::internal, "element {} is {}", i, x[static_cast<size_t>(i)]);
    }
  }
}

void run(const std::string& folder, int rank, int size, bool kills) {
  const auto [group, links] = file_ranks(folder, rank, size);
  or_abort(*group, [&, &all_links = links] {
    kernels::cuda::CudaKernels kernels(rank % std::max(1, kernels::cuda::device_count()));
    const MakeCommunicator make = gpu_communicators(group, all_links, kernels);
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto ranks = make(0, all);
    const auto memory = kernels.allocate(sizeof(float) * kCount);
    or_withdraw(*all_links, [&] { sum(*ranks, kernels, memory.get(), kills); });
  });
  group->barrier();  // nobody takes it for ended
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    ferry::test::run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argc > 4);
    fmt::print("rank {}: the sums are right\n", argv[2]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print("rank {}: {}\n", argv[2], error.what());
    return 1;
  }
}
