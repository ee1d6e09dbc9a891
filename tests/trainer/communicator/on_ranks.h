// Ranks of a communicator for tests: threads (thread_ranks.cpp) or processes (mpi/mpi_ranks.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/communicator/communicator.h"

namespace ferry::test {

using RankBody = std::function<void(Communicator& ranks)>;

/// Runs `body` on each of `size` ranks. Returns what they threw: of threads by rank, "" where
/// nothing was; of processes each returns its own alone, where there is one. What is still offered
/// then has to outlive the call.
std::vector<std::string> on_ranks(int size, const RankBody& body);

}  // namespace ferry::test
