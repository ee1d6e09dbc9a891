// A training loop in small: ranks that are threads, each with some rows of two tensors, change them
// step by step, save now and then without waiting for the disk, and resume from what is there.
//
//   async_save RUN_FOLDER [STEPS [RANKS]]
//
// Ctrl-C or SIGTERM ends it in order: what was saved gets to disk. Run it again, with another
// number of ranks if you like: it goes on where it was.
#include <ckpt/base/error.h>
#include <ckpt/checkpoint.h>
#include <ckpt/memory/async_saver.h>
#include <ckpt/memory/load.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kRows = 1000, kColumns = 256;
constexpr int64_t kSaveEvery = 5;

std::atomic<bool> stopped{false};
void on_signal(int) { stopped = true; }

// Some rows of the model, and how they are named and shaped.
class Shard {
 public:
  Shard(int rank, int ranks)
      : begin_(kRows * rank / ranks),
        rows_(kRows * (rank + 1) / ranks - begin_),
        weight_(static_cast<size_t>(rows_ * kColumns)),
        counts_(static_cast<size_t>(rows_)) {}

  // What a step makes of the model: each value can be computed independently.
  void step(int64_t iteration) {
    for (size_t i = 0; i < weight_.size(); ++i) {
      const int64_t element = begin_ * kColumns + static_cast<int64_t>(i);
      weight_[i] = static_cast<float>(element % 1000) / 8 + static_cast<float>(iteration);
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      counts_[i] = iteration * (begin_ + static_cast<int64_t>(i));
    }
  }

  std::vector<ferry::Region> regions() {
    return {{"layer.weight",
             ferry::DType::f32,
             {kRows, kColumns},
             {{{begin_, 0}, {rows_, kColumns}}},
             reinterpret_cast<std::byte*>(weight_.data())},
            {"counts",
             ferry::DType::i64,
             {kRows},
             {{{begin_}, {rows_}}},
             reinterpret_cast<std::byte*>(counts_.data())}};
  }

  bool operator==(const Shard&) const = default;

 private:
  int64_t begin_, rows_;
  std::vector<float> weight_;
  std::vector<int64_t> counts_;
};

ferry::Snapshot snapshot_of(Shard& shard, int64_t iteration) {
  ferry::Snapshot snapshot;
  snapshot.iteration = iteration;
  for (const ferry::Region& region : shard.regions()) {
    snapshot.tensors.push_back(
        {region.name, region.dtype, region.shape, region.shard, region.data});
  }
  return snapshot;
}

// The iteration that a run has got to, loaded into the shard; 0 when there is none.
int64_t resume(const std::string& run, int rank, int ranks, Shard& shard) {
  const auto files = ferry::posix_file_system();
  if (files->status(run).kind == ferry::PathKind::missing) return 0;
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(files, run);
  ferry::load(checkpoint, shard.regions());
  const int64_t iteration = checkpoint.iteration.value_or(0);
  Shard expected(rank, ranks);
  expected.step(iteration);
  if (!(shard == expected)) ferry::fail(ferry::ErrorKind::corrupt, "{} holds something else", run);
  return iteration;
}

// Ranks stop at the same step: when any has seen the signal.
bool any_is_stopped(ferry::Group& group) {
  for (const std::string& one : group.exchange(stopped ? "stop" : "")) {
    if (!one.empty()) return true;
  }
  return false;
}

// `steps_group` is for messages between ranks in the loop, `group` for the saver.
void train(const std::string& run, int64_t steps, ferry::Group& steps_group,
           const std::shared_ptr<ferry::Group>& group) {
  const int rank = group->rank(), ranks = group->size();
  Shard shard(rank, ranks);
  const int64_t first = resume(run, rank, ranks, shard);
  ferry::AsyncSaverOptions options;
  options.most_in_flight = 2;
  ferry::AsyncSaver saver(ferry::posix_file_system(), run, group, options);
  ferry::AsyncSaver::Ticket ticket;
  for (int64_t iteration = first + 1; iteration <= first + steps; ++iteration) {
    if (any_is_stopped(steps_group)) break;
    ticket.wait();  // until the last snapshot is copied the state stays as it is
    shard.step(iteration);
    if (iteration % kSaveEvery == 0) ticket = saver.save(snapshot_of(shard, iteration));
  }
  ticket.wait();
  saver.finish();
  const auto saved = saver.status().last_saved;
  if (rank == 0 && saved) std::printf("iteration %lld\n", static_cast<long long>(*saved));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: async_save RUN_FOLDER [STEPS [RANKS]]\n");
    return 2;
  }
  const std::string run = argv[1];
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 10;
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
  const int ranks = argc > 3 ? std::max(1, std::atoi(argv[3])) : 2;
  auto groups = ferry::thread_groups(ranks), steps_groups = ferry::thread_groups(ranks);
  std::atomic<int> failures{0};
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto work = [&, rank, group = groups[rank], steps_group = steps_groups[rank]] {
      try {
        train(run, steps, *steps_group, group);
      } catch (const ferry::Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        ++failures;
      }
    };
    threads.emplace_back(work);
  }
  groups.clear(), steps_groups.clear();  // each thread has its own: one that fails ends its group
  threads.clear();                       // waits for all
  return failures == 0 ? 0 : 1;
}
