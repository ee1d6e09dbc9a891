#include <numeric>
#include <thread>

#include "ckpt/base/error.h"
#include "kernels/kernels.h"
#include "tests/trainer/communicator/on_ranks.h"

namespace ferry::test {

std::vector<std::string> on_ranks(int size, const RankBody& body) {
  const auto groups = thread_groups(size);
  const auto links = thread_links(groups);
  std::vector<std::string> errors(groups.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto kernels = kernels::cpu_kernels(1);
      std::vector<int> members(groups.size());
      std::iota(members.begin(), members.end(), 0);
      const auto ranks = host_communicator(links[rank], 0, members, *kernels);
      try {
        body(*ranks);
      } catch (const Error& error) {
        errors[rank] = error.what();
        links[rank]->withdraw();
      }
    });
  }
  threads.clear();
  return errors;
}

}  // namespace ferry::test
