// The tests of collectives, between processes: mpirun -n 5 collectives_mpi [PIECE_BYTES].
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <numeric>

#include "ckpt/base/error.h"
#include "ckpt/group/mpi/mpi_group.h"
#include "kernels/kernels.h"
#include "tests/trainer/communicator/on_ranks.h"
#include "trainer/communicator/mpi/mpi_links.h"

namespace ferry::test {
namespace {

size_t piece_bytes = kLinkPieceBytes;

// More than an int counts. Takes 12 GiB of memory for two processes.
TEST(LargeTransfers, DISABLED_AreWhole) {
  constexpr size_t kCount = (size_t{9} << 28) + 3;  // of 2.25 GiB and 3 bytes
  std::vector<std::byte> x(kCount);
  const auto value = [](size_t i, int rank) {
    return static_cast<std::byte>((i * 31 + (i >> 20)) % 251 + static_cast<size_t>(rank));
  };
  const auto group = mpi_group(MPI_COMM_WORLD);
  const auto links = mpi_links(MPI_COMM_WORLD, group, piece_bytes);
  if (group->rank() > 1) return;
  for (size_t i = 0; i < kCount; ++i) x[i] = value(i, group->rank());
  const int other = 1 - group->rank();
  const uint64_t offer = links->offer(0, other, x);
  links->take(0, other, kCount, [&](std::span<const std::byte> bytes) {
    size_t wrong = bytes.size() == kCount ? 0 : 1;
    for (size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != value(i, other);
    EXPECT_EQ(wrong, 0u);
  });
  links->wait(offer);
}

}  // namespace

std::vector<std::string> on_ranks(int size, const RankBody& body) {
  const auto group = mpi_group(MPI_COMM_WORLD);
  const auto links = mpi_links(MPI_COMM_WORLD, group, piece_bytes);
  EXPECT_GE(group->size(), size) << "as many processes are needed";
  std::vector<std::string> error;
  if (group->rank() < size) {
    const auto kernels = kernels::cpu_kernels(1);
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    const auto ranks = host_communicator(links, 0, members, *kernels);
    try {
      body(*ranks);
    } catch (const Error& thrown) {
      error = {thrown.what()};
      links->withdraw();
    }
  }
  // Other ranks report their own errors; all stay until nobody needs them any more.
  try {
    group->barrier();
  } catch (const Error&) {
  }
  return error;
}

}  // namespace ferry::test

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) ferry::test::piece_bytes = std::strtoull(argv[1], nullptr, 10);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
