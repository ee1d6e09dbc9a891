// Saves a run as its ranks would, each from its own memory: for programs of the peers to read.
//
//   save_run SOURCE OUT fully_reshardable|dp_reshardable|legacy TP PP EP DP
//
// The ranks are threads; each gives its parts of the model and the runs of optimizer state that are
// its own at that layout.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/staging/write_lock.h"
#include "ckpt/megatron/retarget.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/memory/run_state_memory.h"
#include "tests/memory/run_ranks.h"

namespace {

using namespace ferry;

// What one rank holds, read from the source.
struct RankMemory {
  std::list<std::string> bytes;
  std::vector<Region> regions;

  RankMemory(const Checkpoint& source, const std::vector<test::HeldShard>& held) {
    for (const test::HeldShard& one : held) {
      const StateTensor& tensor = *one.tensor;
      const int64_t elements = one.shard.elements(tensor.name);
      bytes.emplace_back(static_cast<size_t>(elements * size_bytes(tensor.dtype)), '\0');
      regions.push_back({tensor.name, tensor.dtype, tensor.shape, one.shard,
                         reinterpret_cast<std::byte*>(bytes.back().data())});
    }
    load(source, regions);
  }
};

void save_rank(const Checkpoint& source, const RunState& state, std::string_view form,
               const std::string& out, Group& group) {
  const test::RunRanks ranks(state);
  const RankMemory memory(source, ranks.held_by(group.rank(), form != "fully_reshardable"));
  Snapshot snapshot;
  snapshot.iteration = state.iteration.value_or(0);
  TorchDistOptions options;
  if (form == "dp_reshardable") options.optimizer = ShardedOptimizer::dp_reshardable;
  snapshot.format = form == "legacy" ? legacy_format(state) : torch_dist_format(state, options);
  for (const Region& region : memory.regions) {
    snapshot.tensors.push_back(
        {region.name, region.dtype, region.shape, region.shard, region.data});
  }
  save(posix_file_system(), out, snapshot, group);
}

int run(char** argv) {
  const auto number = [](const char* text) { return int64_t{std::atoll(text)}; };
  const Checkpoint source = open_checkpoint(posix_file_system(), argv[1]);
  RunState state = state_of(source);
  ParallelTarget target;
  target.tensor = number(argv[4]), target.pipeline = number(argv[5]);
  target.expert = number(argv[6]), target.data = number(argv[7]);
  retarget(state, target);
  const auto groups = thread_groups(test::RunRanks(state).size());
  std::vector<std::string> errors(groups.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          save_rank(source, state, argv[3], argv[2], *groups[rank]);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
          abort_with_current_exception(*groups[rank]);
        }
      });
    }
  }
  for (const std::string& error : errors) {
    if (error.empty()) continue;
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::printf("%s: %zu ranks\n", argv[2], groups.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr,
                 "save_run SOURCE OUT fully_reshardable|dp_reshardable|legacy TP PP EP DP\n");
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
