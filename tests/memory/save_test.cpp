// Saving memory by one rank and by several: what is on disk is what was in memory, and what does
// not fit together fails on all ranks.

#include <gmock/gmock.h>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/memory/run_state_memory.h"
#include "ckpt/memory/snapshot_format.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/memory/random_model.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class NoPlace final : public OwnFilesFormat {
 public:
  PlacedState place(OwnState) const override { fail(ErrorKind::unsupported, "no place"); }
  SmallFiles complete(DcpContent&, int64_t) const override { return {}; }
};

class Save : public testing::Test {
 protected:
  Save() { memory_->create_folder("runs"); }

  void expect_sound(const std::string& run) const {
    const VerifyReport report = verify(memory_, run, {});
    EXPECT_TRUE(report.has_manifest);
    EXPECT_EQ(report.covered_bytes, report.bytes);
    for (const Problem& problem : report.problems) ADD_FAILURE() << problem.what;
  }

  // Each rank saves what `give` says.
  template <typename Give>
  std::vector<std::string> save_all(int ranks, const Give& give, const SaveOptions& options = {}) {
    return on_ranks(ranks, [&](std::shared_ptr<Group> group) {
      save(memory_, "runs/a", give(group->rank()), *group, options);
    });
  }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  const RandomModel model_ = random_model(1);
};

TEST_F(Save, OneRank) {
  save(memory_, "runs/a", snapshot_of(model_, 100), *lone_group());
  expect_holds(memory_, "runs/a", model_);
  expect_sound("runs/a");
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000100", "latest_checkpointed_iteration.txt"));
  EXPECT_THAT(memory_->list("runs/a/iter_0000100"),
              ElementsAre(".metadata", "__0_0.distcp", "ferry.manifest.json"));
}

TEST_F(Save, SafetensorsFilesOfWholeTensors) {
  for (const int ranks : {1, 3}) {
    SaveOptions options;
    options.begin = {.overwrite = true, .tracker = TrackerMove::never, .folder = "model"};
    const auto errors = save_all(
        ranks,
        [&](int) {
          Snapshot snapshot = snapshot_of(model_, 7);
          snapshot.format = safetensors_format(1 << 20, {{"config.json", "{}"}});
          return snapshot;
        },
        options);
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_EQ(open_checkpoint(memory_, "runs/a/model").format, Format::hugging_face);
    expect_holds(memory_, "runs/a/model", model_);
    expect_sound("runs/a/model");
    EXPECT_EQ(memory_->status("runs/a/model/model-00001-of-00002.safetensors").kind,
              PathKind::file);
  }
}

TEST_F(Save, SafetensorsFilesOfPartsAreRefused) {
  const auto errors = save_all(2, [&](int rank) {
    Snapshot snapshot = part_of_model(model_, 7, rank, 2);
    snapshot.format = safetensors_format();
    return snapshot;
  });
  EXPECT_THAT(errors, Each(HasSubstr("are written from whole tensors; gather it first")));
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

TEST_F(Save, SeveralRanksWriteTheirParts) {
  for (const int ranks : {2, 3, 5}) {
    SaveOptions options;
    options.begin.overwrite = true;
    const auto errors = save_all(
        ranks, [&](int rank) { return part_of_model(model_, 7, rank, ranks); }, options);
    EXPECT_THAT(errors, Each(IsEmpty()));
    expect_holds(memory_, "runs/a", model_);
    expect_sound("runs/a");
    EXPECT_EQ(memory_->status(fmt::format("runs/a/iter_0000007/__{}_0.distcp", ranks - 1)).kind,
              PathKind::file);
  }
}

// Replicas: every rank has all of it, each writes some.
TEST_F(Save, ReplicasAreWrittenOnceAndSharedOut) {
  const auto errors = save_all(2, [&](int) { return snapshot_of(model_, 1); });
  EXPECT_THAT(errors, Each(IsEmpty()));
  expect_holds(memory_, "runs/a", model_);
  const uint64_t first = memory_->status("runs/a/iter_0000001/__0_0.distcp").bytes;
  const uint64_t second = memory_->status("runs/a/iter_0000001/__1_0.distcp").bytes;
  EXPECT_GT(first, 0u);
  EXPECT_GT(second, 0u);
  EXPECT_LT(first + second, 3u << 20);
}

TEST_F(Save, FilesPerRankAndOptions) {
  SaveOptions options;
  options.files_per_rank = 3;
  options.integrity.sha256 = true;
  options.engine.threads = 2;
  options.engine.memory_bytes = 1 << 16;
  options.begin.tracker = TrackerMove::never;
  save(memory_, "runs/a", snapshot_of(model_, 5), *lone_group(), options);
  expect_holds(memory_, "runs/a/iter_0000005", model_);
  expect_sound("runs/a/iter_0000005");
  EXPECT_THAT(memory_->list("runs/a"), ElementsAre("iter_0000005"));
  EXPECT_EQ(memory_->status("runs/a/iter_0000005/__0_2.distcp").kind, PathKind::file);
  EXPECT_EQ(memory_->status("runs/a/iter_0000005/integrity.json").kind, PathKind::file);
}

TEST_F(Save, ObjectsOfAllRanks) {
  const auto archive = [](int64_t value) {
    Draft draft;
    const Value number = draft.integer(value);
    return write_torch_archive(std::move(draft).finish(number).value);
  };
  const auto errors = save_all(2, [&](int rank) {
    Snapshot snapshot = part_of_model(model_, 3, rank, 2);
    snapshot.objects.push_back({fmt::format("state/{}", rank), archive(40 + rank)});
    return snapshot;
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  const Checkpoint checkpoint = open_checkpoint(memory_, "runs/a");
  for (const int64_t rank : {0, 1}) {
    const Object* object = checkpoint.catalog->find_object(fmt::format("state/{}", rank));
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(read_object(checkpoint.catalog, *object).value.integer(), 40 + rank);
  }
}

// A bf16 weight and what it leaves of its fp32 master: on disk the master is whole, and comes back
// in halves, of which the upper one goes up where the lower is half and more.
TEST_F(Save, HalvesOfMasters) {
  const std::vector<uint16_t> weight{0x3F80, 0x3F81, 0xBF82, 0x8000};
  const std::vector<int16_t> rest{0x7FFF, -0x8000, -1, 2};
  const std::vector<uint32_t> masters{0x3F807FFF, 0x3F808000, 0xBF81FFFF, 0x80000002};
  const std::string name = "optimizer.state.param.w";
  const auto half_of = [&](int rank, bool has_weight) {
    Snapshot snapshot;
    snapshot.iteration = 1;
    const Box rows{{2 * rank, 0}, {2, 1}};
    const auto add = [&](const std::string& key, DType dtype, const void* data) {
      snapshot.tensors.push_back(
          {key, dtype, {4, 1}, {rows}, static_cast<const std::byte*>(data) + 4 * rank});
    };
    add(name, DType::i16, rest.data());
    snapshot.tensors.back().half = FloatHalf::lower;
    if (has_weight) add("w", DType::bf16, weight.data());
    return snapshot;
  };
  EXPECT_THAT(save_all(2, [&](int rank) { return half_of(rank, true); }), Each(IsEmpty()));
  const Checkpoint saved = open_checkpoint(memory_, "runs/a");
  std::vector<uint32_t> loaded(4);
  load(saved, std::vector{whole_region(name, DType::f32, {4, 1}, loaded.data())});
  EXPECT_EQ(loaded, masters);
  std::vector<uint16_t> upper(4);
  std::vector<int16_t> lower(4);
  std::vector<Region> halves{whole_region(name, DType::bf16, {4, 1}, upper.data()),
                             whole_region(name, DType::i16, {4, 1}, lower.data())};
  halves[0].half = FloatHalf::upper;
  halves[1].half = FloatHalf::lower;
  load(saved, halves);
  EXPECT_EQ(upper, weight);
  EXPECT_EQ(lower, rest);
  EXPECT_THAT(save_all(2, [&](int rank) { return half_of(rank, rank == 0); }),
              Each(HasSubstr("no bf16 tensor of the upper ones")));
}

// A run of Megatron-LM from memory, by ranks that each hold a part of every tensor: the same
// tensors, arguments and iteration as the checkpoint that it was loaded from.
TEST_F(Save, TorchDist) {
  for (const char* name : {"hot_llama", "llama_tp2dp2_dpr"}) {
    SCOPED_TRACE(name);
    const Checkpoint old =
        open_checkpoint(posix_file_system(), fixture(std::string("megatron/") + name));
    RandomModel model;
    for (const Entry& entry : old.catalog->entries) {
      model[entry.name] = {entry.dtype, entry.shape, read_tensor(old.catalog, entry, 1 << 30)};
    }
    const std::string run = std::string("runs/") + name;
    const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
      Snapshot snapshot = part_of_model(model, 6, group->rank(), 2);
      snapshot.format = torch_dist_format(state_of(old));
      save(memory_, run, snapshot, *group);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    const Checkpoint checkpoint = open_checkpoint(memory_, run);
    EXPECT_EQ(checkpoint.format, Format::torch_dist);
    EXPECT_EQ(checkpoint.iteration, 6);
    EXPECT_EQ(checkpoint.args.value.get("hidden_size").integer(),
              old.args.value.get("hidden_size").integer());
    EXPECT_EQ(checkpoint.optimizer == OptimizerLayout::none,
              old.optimizer == OptimizerLayout::none);
    expect_holds(memory_, run, model);
    expect_sound(run);
    EXPECT_EQ(memory_->status(run + "/iter_0000006/metadata.json").kind, PathKind::file);
  }
}

// Megatron-LM does not load a run without an object for each of Transformer Engine's modules, of
// which the first rank may hold those of the first pipeline stage alone.
TEST_F(Save, ObjectsOfModulesThatOtherRanksHold) {
  const Checkpoint old = open_checkpoint(posix_file_system(), fixture("megatron/hot_llama"));
  std::vector<RandomModel> parts(2);
  for (const Entry& entry : old.catalog->entries) {
    parts[entry.name.find("final_layernorm") == std::string::npos ? 0 : 1][entry.name] = {
        entry.dtype, entry.shape, read_tensor(old.catalog, entry, 1 << 30)};
  }
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    Snapshot snapshot = snapshot_of(parts[static_cast<size_t>(group->rank())], 6);
    RunState state = state_of(old);
    state.objects.clear();
    snapshot.format = torch_dist_format(std::move(state));
    save(memory_, "runs/stages", snapshot, *group);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  const Checkpoint saved = open_checkpoint(memory_, "runs/stages");
  for (const Object& object : old.catalog->objects) {
    if (object.name.find("._extra_state/shard_") == std::string::npos) continue;
    EXPECT_NE(saved.catalog->find_object(object.name), nullptr) << object.name;
  }
}

TEST_F(Save, WhatDoesNotFitTogetherFailsOnAllRanks) {
  const auto expect_failure = [&](const char* message, const auto& change) {
    SCOPED_TRACE(message);
    const auto errors = save_all(2, [&](int rank) {
      Snapshot snapshot = part_of_model(model_, 3, rank, 2);
      if (rank == 1) change(snapshot);
      return snapshot;
    });
    EXPECT_THAT(errors, Each(HasSubstr(message)));
    EXPECT_THAT(memory_->list("runs"), IsEmpty());
  };
  const auto weight = [](Snapshot& snapshot) -> ConstRegion& { return snapshot.tensors[4]; };
  expect_failure("is given as", [&](Snapshot& s) { weight(s).dtype = DType::i32; });
  expect_failure("is given as", [&](Snapshot& s) { weight(s).shape[1] = 2048; });
  expect_failure("they hold", [&](Snapshot& s) { s.tensors.pop_back(); });
  expect_failure("overlap", [&](Snapshot& s) { weight(s).shard.box.offset[0] -= 1; });
  expect_failure("rank 1: tensor weight: the part",
                 [&](Snapshot& s) { weight(s).shard.box.offset[0] += 1; });
  expect_failure("no memory is given", [&](Snapshot& s) { weight(s).data = nullptr; });
  expect_failure("the regions [256:512, 0:1024] and [256:512, 0:1024] of one rank overlap",
                 [&](Snapshot& s) { s.tensors.push_back(weight(s)); });
  expect_failure("saves iteration 4 next", [&](Snapshot& s) { s.iteration = 4; });
  expect_failure("is not an iteration", [&](Snapshot& s) { s.iteration = -1; });
  expect_failure("marks Megatron-LM's own objects", [&](Snapshot& s) {
    s.objects.push_back({"x/shard_0", "x"});
  });
  expect_failure("is given twice", [&](Snapshot& s) { s.objects.push_back({"weight", "x"}); });
  expect_failure("no format", [&](Snapshot& s) { s.format = nullptr; });
  expect_failure("rank 1: no place", [&](Snapshot& s) { s.format = std::make_shared<NoPlace>(); });
}

TEST_F(Save, AnIterationThatIsThereIsReplacedOnRequestOnly) {
  save(memory_, "runs/a", snapshot_of(model_, 1), *lone_group());
  const RandomModel other = random_model(99);
  const auto group = lone_group();
  EXPECT_THROW(save(memory_, "runs/a", snapshot_of(other, 1), *group), Error);
  expect_holds(memory_, "runs/a", model_);
  SaveOptions options;
  options.begin.overwrite = true;
  save(memory_, "runs/a", snapshot_of(other, 1), *group, options);  // the group goes on
  expect_holds(memory_, "runs/a", other);
}

TEST_F(Save, StopsOnRequestAndLeavesNothing) {
  const std::atomic<bool> cancel{true};
  const auto errors = on_ranks(3, [&](std::shared_ptr<Group> group) {
    SaveOptions options;
    if (group->rank() == 2) options.engine.cancel = &cancel;
    save(memory_, "runs/a", part_of_model(model_, 1, group->rank(), 3), *group, options);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 2"), HasSubstr("stopped on request"))));
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// One rank's disk fails at every operation: no rank believes in the checkpoint.
TEST_F(Save, ARanksFaultFailsAll) {
  for (const int faulty : {0, 1}) {
    for (uint64_t n = 1;; ++n) {
      SCOPED_TRACE(testing::Message() << "rank " << faulty << ", operation " << n);
      const auto memory = std::make_shared<MemoryFileSystem>();
      memory->create_folder("runs");
      const auto broken = std::make_shared<FaultFileSystem>(memory, n, ErrorKind::exhausted, true);
      const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
        const std::shared_ptr<const FileSystem> own = memory;
        SaveOptions options;
        options.engine.threads = 1;
        save(group->rank() == faulty ? broken : own, "runs/a",
             part_of_model(model_, 1, group->rank(), 2), *group, options);
      });
      EXPECT_EQ(errors[0], errors[1]);
      if (errors[0].empty()) {
        EXPECT_GT(n, 8u);
        expect_holds(memory, "runs/a", model_);
        break;
      }
      EXPECT_THAT(errors[0], HasSubstr(fmt::format("rank {}", faulty)));
      // The last operation syncs what stands already.
      if (memory->status("runs/a").kind != PathKind::missing)
        expect_holds(memory, "runs/a", model_);
      save(memory, "runs/b", snapshot_of(model_, 1), *lone_group());  // and the next run succeeds
      for (const std::string& left : memory->list("runs")) {
        EXPECT_THAT(left, Not(HasSubstr("ferry-partial.b")));
      }
    }
  }
}

}  // namespace
}  // namespace ferry::test
