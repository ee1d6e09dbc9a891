// Resharding in memory: what `ferry reshard` does, without a disk.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "ckpt/checkpoint.h"
#include "ckpt/core/placed.h"
#include "ckpt/engine/engine.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/retarget.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "tests/io/memory_file_system.h"
#include "tests/megatron/writer_support.h"
#include "tests/support.h"

namespace ferry::test {

/// `checkpoint` at another layout, opened. The folder's name is `name`.
inline Checkpoint reshard(const Checkpoint& checkpoint, const ParallelTarget& target,
                          const std::shared_ptr<MemoryFileSystem>& memory, const std::string& name,
                          const TorchDistOptions& options = {}) {
  RunState state = state_of(checkpoint);
  retarget(state, target);
  write(plan_torch_dist(std::move(state), options), memory, name);
  return open_checkpoint(memory, name);
}

/// Every tensor is what tests/fixtures/truth/NAME.json says, and there is no other.
inline void expect_truth(const Checkpoint& checkpoint, const std::string& name) {
  const nlohmann::json truth = truth_of(name);
  std::set<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    names.insert(entry.name);
    EXPECT_EQ(torch_name(entry.dtype), truth[entry.name]["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, truth[entry.name]["shape"].get<Dims>()) << entry.name;
    EXPECT_EQ(hash_of(read_tensor(checkpoint.catalog, entry, 1 << 30)),
              truth[entry.name]["xxh3_128"].get<std::string>())
        << entry.name;
  }
  EXPECT_EQ(names.size(), truth.size());
}

}  // namespace ferry::test
