#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <numeric>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/group/mpi/process_group.h"

namespace ferry {
namespace {

// What MPI waits for it spins for, which takes a core from those who work: ranks wait for each
// other as long as one of them compresses, hashes or flushes.
void wait_for(MPI_Request request) {
  constexpr std::chrono::microseconds kFirst{50}, kLongest{5000};
  for (auto pause = kFirst;; pause = std::min(pause * 2, kLongest)) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    std::this_thread::sleep_for(pause);
  }
}

class MpiGroup final : public Group {
 public:
  MpiGroup() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
  }
  ~MpiGroup() override { MPI_Finalize(); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  // Errors of MPI end all processes: its default.
  std::vector<std::string> exchange(std::string bytes) override {
    uint64_t length = bytes.size();
    std::vector<uint64_t> lengths(static_cast<size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, ranks_, &request);
    wait_for(request);
    const uint64_t total = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
    if (total > INT_MAX) fail(ErrorKind::exhausted, "ranks exchange {} bytes at once", total);
    std::vector<int> counts(lengths.begin(), lengths.end()), places(lengths.size());
    std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
    std::string all(total, '\0');
    MPI_Iallgatherv(bytes.data(), static_cast<int>(length), MPI_BYTE, all.data(), counts.data(),
                    places.data(), MPI_BYTE, ranks_, &request);
    wait_for(request);
    std::vector<std::string> parts;
    for (size_t i = 0; i < lengths.size(); ++i) {
      parts.push_back(all.substr(static_cast<size_t>(places[i]), lengths[i]));
    }
    return parts;
  }

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

}  // namespace

// A program that is started alone does without MPI, which takes a while to begin.
std::shared_ptr<Group> process_group() {
  const std::vector<Launcher> started_by = launchers(process_environment());
  if (!started_several(started_by)) return lone_group();
  auto group = std::make_shared<MpiGroup>();
  check_group_size(
      started_by, group->size(),
      "Use the launcher of the MPI that ferry was built with (of Slurm, srun --mpi=pmix or "
      "another of srun --mpi=list)");
  return group;
}

}  // namespace ferry
