// Ranks of a run with a distributed optimizer save what each of them holds, runs of flattened
// tensors included, and load it again at other layouts.
#include <gmock/gmock.h>

#include <thread>

#include "ckpt/checkpoint.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/run_state_memory.h"
#include "tests/megatron/reshard_support.h"
#include "tests/memory/random_model.h"
#include "tests/memory/run_ranks.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct Case {
  const char* fixture;
  ParallelTarget saved;
  std::vector<ParallelTarget> loaded;
};

class DistributedOptimizer : public testing::TestWithParam<Case> {
 protected:
  DistributedOptimizer() {
    memory_->create_folder("runs");
    const Checkpoint peer = open_checkpoint(posix_file_system(),
                                            fixture(std::string("megatron/") + GetParam().fixture));
    truth_ = reshard(peer, GetParam().saved, memory_, "truth");
    for (const Entry& entry : truth_.catalog->entries) {
      bytes_[entry.name] = read_tensor(truth_.catalog, entry, 1 << 28);
    }
    // Norms of rank folders have the names of local modules, as the arguments call them.
    const RunState state = state_of(truth_);
    RunState local = state;
    name_norms(local, false);
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      bytes_.emplace(local.tensors[i].name, bytes_.at(state.tensors[i].name));
    }
  }

  std::vector<std::string> save_from_memory(ShardedOptimizer form, const std::string& run) const {
    TorchDistOptions options;
    options.optimizer = form;
    const bool copies = form == ShardedOptimizer::dp_reshardable;
    return save_from_memory(torch_dist_format(state_of(truth_), options), copies, run);
  }

  // Each rank gives what the one `offset` ranks further on holds.
  std::vector<std::string> save_from_memory(const std::shared_ptr<const SnapshotFormat>& format,
                                            bool copies, const std::string& run, int offset = 0,
                                            std::optional<uint64_t> staging_bytes = {}) const {
    const RunState state = state_of(truth_);
    const RunRanks ranks(state);
    return on_ranks(ranks.size(), [&](std::shared_ptr<Group> group) {
      std::list<std::string> own;  // this rank's memory
      Snapshot snapshot;
      snapshot.iteration = 7;
      snapshot.format = format;
      const int rank = (group->rank() + offset) % group->size();
      for (const HeldShard& held : ranks.held_by(rank, copies)) {
        own.push_back(elements_of(*held.tensor, held.shard));
        snapshot.tensors.push_back({held.tensor->name, held.tensor->dtype, held.tensor->shape,
                                    held.shard,
                                    reinterpret_cast<const std::byte*>(own.back().data())});
      }
      if (!staging_bytes) {
        save(memory_, run, snapshot, *group);
        return;
      }
      AsyncSaverOptions options;
      options.staging_bytes = *staging_bytes;
      AsyncSaver saver(memory_, run, group, options);
      saver.save(snapshot).wait();
      for (std::string& bytes : own) bytes.assign(bytes.size(), '!');
      saver.finish();
      EXPECT_EQ(saver.status().in_pieces, 1);
    });
  }

  void expect_same_files(const std::string& a, const std::string& b) const {
    ASSERT_EQ(memory_->list(a), memory_->list(b));
    for (const std::string& name : memory_->list(a)) {
      const std::string one = a + "/" + name, other = b + "/" + name;
      if (memory_->status(one).kind == PathKind::folder) {
        expect_same_files(one, other);
      } else {
        EXPECT_TRUE(memory_->get(one) == memory_->get(other)) << one;
      }
    }
  }

  std::string elements_of(const StateTensor& tensor, const Shard& shard) const {
    return cut(bytes_.at(tensor.name), tensor.shape, size_bytes(tensor.dtype), shard);
  }

  // What `ferry reshard` makes of the same state.
  Checkpoint expected(ShardedOptimizer form, bool raw) const {
    TorchDistOptions options;
    options.optimizer = form;
    const std::string folder = fmt::format("expected {} {}", static_cast<int>(form), raw);
    write(plan_torch_dist(state_of(truth_), options), memory_, folder);
    return open_checkpoint(memory_, folder, {{}, raw});
  }

  // Every rank of another layout loads what it will hold.
  void expect_loads(const std::string& run, const ParallelTarget& target) const {
    SCOPED_TRACE(fmt::format("tp {} pp {} dp {}", target.tensor.value_or(0),
                             target.pipeline.value_or(0), target.data.value_or(0)));
    const int size = static_cast<int>(*target.tensor * *target.pipeline * *target.data);
    const auto errors = on_ranks(size, [&](std::shared_ptr<Group> group) {
      const Checkpoint saved = open_together(memory_, run, *group);
      RunState state = state_of(saved);
      state.args = apply_target(state.args, target);
      const RunRanks ranks(state);
      EXPECT_EQ(ranks.size(), size);
      const int rank = group->rank();
      const std::vector<HeldShard> held = ranks.held_by(rank, true);
      std::list<std::string> own;
      std::vector<Region> regions;
      for (const HeldShard& one : held) {
        own.emplace_back(elements_of(*one.tensor, one.shard).size(), '?');
        regions.push_back({one.tensor->name, one.tensor->dtype, one.tensor->shape, one.shard,
                           reinterpret_cast<std::byte*>(own.back().data())});
      }
      load(saved, regions);
      auto loaded = own.begin();
      for (const HeldShard& one : held) {
        EXPECT_TRUE(*loaded++ == elements_of(*one.tensor, one.shard))
            << "rank " << rank << " " << one.tensor->name << " " << to_string(one.shard);
      }
      group->barrier();  // rank 0's mark is everyone's
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  Checkpoint truth_;
  std::map<std::string, std::string> bytes_;  // of whole tensors
};

void expect_same_objects(const Checkpoint& a, const Checkpoint& b) {
  std::set<std::string> names, others;
  for (const Object& object : a.catalog->objects) names.insert(object.name);
  for (const Object& object : b.catalog->objects) others.insert(object.name);
  EXPECT_EQ(names, others);
}

TEST_P(DistributedOptimizer, SavedByItsRanksItIsWhatReshardMakes) {
  for (const ShardedOptimizer form :
       {ShardedOptimizer::fully_reshardable, ShardedOptimizer::dp_reshardable}) {
    const bool flat = form == ShardedOptimizer::dp_reshardable;
    SCOPED_TRACE(flat ? "dp_reshardable" : "fully_reshardable");
    const std::string run = flat ? "runs/flat" : "runs/full";
    EXPECT_THAT(save_from_memory(form, run), Each(IsEmpty()));
    for (const bool raw : {true, false}) {
      const Checkpoint saved = open_checkpoint(memory_, run, {{}, raw});
      const Checkpoint same = expected(form, raw);
      EXPECT_EQ(saved.optimizer, same.optimizer);
      EXPECT_EQ(saved.optimizer_problem, "");
      expect_same_tensors(saved.catalog, same.catalog);
      expect_same_objects(saved, same);
    }
    for (const ParallelTarget& target : GetParam().loaded) expect_loads(run, target);
  }
}

// Every byte of the rank folders, whose flat buffers several ranks write together.
TEST_P(DistributedOptimizer, SavedAsRankFoldersItIsWhatReshardWrites) {
  EXPECT_THAT(save_from_memory(legacy_format(state_of(truth_)), true, "runs/a"), Each(IsEmpty()));
  RunState state = state_of(truth_);
  state.iteration = 7;
  const PlannedOutput planned = plan_legacy(state, {});
  write(planned, memory_, "expected");
  const std::string folder = "runs/a/iter_0000007";
  for (const FileInfo& file : planned.plan.target.files) {
    EXPECT_TRUE(memory_->get(folder + "/" + file.path) == memory_->get("expected/" + file.path))
        << file.path;
  }
  EXPECT_EQ(memory_->list(folder).size(), memory_->list("expected").size() + 1);  // the manifest
  const VerifyReport report = verify(memory_, "runs/a", {});
  EXPECT_EQ(report.covered_bytes, report.bytes);
  EXPECT_THAT(report.problems, IsEmpty());
  for (const ParallelTarget& target : GetParam().loaded) expect_loads("runs/a", target);
}

// Through less staging memory than a rank's state takes, down to one piece.
TEST_P(DistributedOptimizer, SavedInPiecesTheFilesAreTheSame) {
  TorchDistOptions full, flat;
  flat.optimizer = ShardedOptimizer::dp_reshardable;
  const RunState state = state_of(truth_);
  const std::pair<std::shared_ptr<const SnapshotFormat>, bool> formats[] = {
      {torch_dist_format(state, full), false},
      {torch_dist_format(state, flat), true},
      {legacy_format(state), true}};
  for (const auto& [format, copies] : formats) {
    EXPECT_THAT(save_from_memory(format, copies, "runs/whole"), Each(IsEmpty()));
    for (const uint64_t bytes : {20'000, 2'000, 64}) {
      EXPECT_THAT(save_from_memory(format, copies, "runs/pieces", 0, bytes), Each(IsEmpty()));
      expect_same_files("runs/whole", "runs/pieces");
      memory_->remove_all("runs/pieces");
    }
    memory_->remove_all("runs/whole");
  }
}

// The ranks of the first case hold runs, and ends of rows.
TEST_P(DistributedOptimizer, RanksHoldRuns) {
  const RunState state = state_of(truth_);
  const RunRanks ranks(state);
  int runs = 0, cut_rows = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (const HeldShard& one : ranks.held_by(rank, true)) {
      runs += one.shard.is_run();
      cut_rows += filled_boxes(one.shard).size() > 1;
    }
  }
  const bool has_optimizer = truth_.optimizer != OptimizerLayout::none;
  EXPECT_EQ(runs > 0, has_optimizer);
  EXPECT_TRUE(cut_rows > 0 || !std::string_view(GetParam().fixture).starts_with("llama"));
}

// A rank that gives state of another layout gets an error, and nothing is saved.
TEST_P(DistributedOptimizer, WhatBucketsHaveNoPlaceForIsRefused) {
  TorchDistOptions options;
  options.optimizer = ShardedOptimizer::dp_reshardable;
  EXPECT_THAT(save_from_memory(torch_dist_format(state_of(truth_), options), true, "runs/a", 1),
              Each(HasSubstr("has room for")));
  EXPECT_THAT(save_from_memory(legacy_format(state_of(truth_)), true, "runs/b", 1),
              Each(HasSubstr("which this rank writes, it gives")));
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

ParallelTarget layout(int64_t tensor, int64_t pipeline, int64_t expert, int64_t data) {
  ParallelTarget target;
  target.tensor = tensor, target.pipeline = pipeline, target.expert = expert, target.data = data;
  return target;
}

INSTANTIATE_TEST_SUITE_P(
    Peers, DistributedOptimizer,
    testing::Values(Case{"llama_dp4_dpr_buckets",
                         layout(2, 1, 1, 2),
                         {layout(1, 1, 1, 4), layout(4, 1, 1, 1), layout(1, 2, 1, 2)}},
                    Case{"qwen2_pp2", layout(1, 2, 1, 2), {layout(2, 1, 1, 2)}},
                    Case{"qwen3moe_te_ep2pp2_dpr", layout(1, 2, 2, 2), {layout(1, 1, 4, 4)}}),
    [](const auto& each) { return std::string(each.param.fixture); });

}  // namespace
}  // namespace ferry::test
