// A few tensors in memory with random bytes, shared out over ranks, and what comes back of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/memory/save.h"

namespace ferry::test {

struct RandomTensor {
  DType dtype = DType::u8;
  Dims shape;
  std::string bytes;

  ConstRegion region(const std::string& name) const {
    return whole_region(name, dtype, shape, static_cast<const void*>(bytes.data()));
  }
};

using RandomModel = std::map<std::string, RandomTensor>;

inline RandomTensor random_tensor(DType dtype, const Dims& shape, uint32_t seed) {
  RandomTensor tensor{dtype, shape, {}};
  tensor.bytes.resize(static_cast<size_t>(element_count(shape, "t") * size_bytes(dtype)));
  std::mt19937 random(seed);
  for (char& byte : tensor.bytes) byte = static_cast<char>(random());
  return tensor;
}

/// Several shapes and dtypes: more than a tile, a scalar, none at all.
inline RandomModel random_model(uint32_t seed) {
  return {{"weight", random_tensor(DType::f32, {512, 1024}, seed)},
          {"layer.weight", random_tensor(DType::bf16, {96, 40}, seed + 1)},
          {"layer.cube", random_tensor(DType::f16, {4, 6, 10}, seed + 2)},
          {"step", random_tensor(DType::i64, {}, seed + 3)},
          {"none", random_tensor(DType::f32, {0, 8}, seed + 4)}};
}

inline Snapshot snapshot_of(const RandomModel& model, int64_t iteration) {
  Snapshot snapshot;
  snapshot.iteration = iteration;
  for (const auto& [name, tensor] : model) snapshot.tensors.push_back(tensor.region(name));
  return snapshot;
}

/// The rows of each tensor that rank `rank` of `ranks` holds; what has no rows all of them hold.
inline Snapshot part_of_model(const RandomModel& model, int64_t iteration, int rank, int ranks) {
  Snapshot snapshot = snapshot_of(model, iteration);
  for (ConstRegion& region : snapshot.tensors) {
    if (region.shape.empty()) continue;
    const int64_t rows = region.shape[0];
    const int64_t begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
    const int64_t row_bytes = rows == 0 ? 0 : static_cast<int64_t>(checked_bytes(region)) / rows;
    region.shard.box.offset[0] = begin;
    region.shard.box.size[0] = end - begin;
    region.data += begin * row_bytes;
  }
  return snapshot;
}

/// The checkpoint at `path` holds exactly these tensors, byte for byte.
inline void expect_holds(const std::shared_ptr<const FileSystem>& file_system,
                         const std::string& path, const RandomModel& model) {
  const Checkpoint checkpoint = open_checkpoint(file_system, path);
  EXPECT_EQ(checkpoint.catalog->entries.size(), model.size());
  for (const Entry& entry : checkpoint.catalog->entries) {
    const auto found = model.find(entry.name);
    ASSERT_NE(found, model.end()) << entry.name;
    EXPECT_EQ(entry.dtype, found->second.dtype) << entry.name;
    EXPECT_EQ(entry.shape, found->second.shape) << entry.name;
    EXPECT_TRUE(read_tensor(checkpoint.catalog, entry, 1 << 30) == found->second.bytes)
        << entry.name;
  }
}

/// Runs work(group) on a thread of its own for each rank. What each threw: empty, or its message.
template <typename Work>
std::vector<std::string> on_ranks(int size, const Work& work) {
  std::vector<std::shared_ptr<Group>> groups = thread_groups(size);
  std::vector<std::string> errors(groups.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(std::move(groups[rank]));
        } catch (const Error& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  return errors;
}

}  // namespace ferry::test
