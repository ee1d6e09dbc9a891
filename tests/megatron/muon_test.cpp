// Runs whose matrices have an optimizer of their own, layer-wise: Muon, with Adam for everything
// else. The files of tests/fixtures/muon were saved by Megatron Core's own code
// (tests/interop/fixtures/make_muon_runs.py); the truth is that of the same state as it saved it a
// tensor a parameter, read by PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/base/error.h"
#include "ckpt/integrity/soundness.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "tests/megatron/reshard_support.h"
#include "tests/megatron/small_run.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kRuns = {"dense_dpr", "dense_files", "experts_files"};

Checkpoint open_muon(const std::string& name) {
  return open_checkpoint(posix_file_system(), test::fixture("muon/" + name));
}

void expect_state_of(const Checkpoint& checkpoint, const std::string& name) {
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  const std::string file = test::fixture("muon/" + name.substr(0, name.find('_')) + ".json");
  const nlohmann::json truth = nlohmann::json::parse(std::ifstream(file));
  std::set<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    names.insert(entry.name);
    EXPECT_EQ(entry.shape, truth[entry.name]["shape"].get<Dims>()) << entry.name;
    EXPECT_EQ(test::hash_of(read_tensor(checkpoint.catalog, entry, 1 << 30)),
              truth[entry.name]["xxh3_128"].get<std::string>())
        << entry.name;
  }
  EXPECT_EQ(names.size(), truth.size());
}

ParallelTarget target_of(int64_t tensor, int64_t pipeline, int64_t data, int64_t expert = 1) {
  ParallelTarget target;
  target.tensor = tensor;
  target.pipeline = pipeline;
  target.data = data;
  target.expert = expert;
  if (expert > 1) target.expert_tensor = 1;
  return target;
}

// The run with experts has one layer.
std::vector<ParallelTarget> targets_of(const std::string& name) {
  const int64_t stages = name.starts_with("dense") ? 2 : 1;
  return {target_of(1, 1, 1), target_of(2, 1, 3), target_of(1, stages, 2)};
}

Checkpoint as_rank_folders(const Checkpoint& checkpoint, const ParallelTarget& target,
                           const std::shared_ptr<MemoryFileSystem>& memory) {
  RunState state = state_of(checkpoint);
  retarget(state, target);
  test::write(plan_legacy(state, {true}), memory, "folders");
  return open_checkpoint(memory, "folders");
}

class MuonRun : public testing::TestWithParam<std::string> {};

TEST_P(MuonRun, HasMomentumOfMatricesAndMomentsOfAllElse) {
  const Checkpoint checkpoint = open_muon(GetParam());
  expect_state_of(checkpoint, GetParam());
  EXPECT_EQ(state_of(checkpoint).param_groups.size(), 2u);
  EXPECT_EQ(problem_by_structure(posix_file_system(), checkpoint.path), "");
}

TEST_P(MuonRun, IsWrittenAtOtherLayoutsInEveryFormOfTorchDist) {
  const Checkpoint checkpoint = open_muon(GetParam());
  for (const ShardedOptimizer form :
       {ShardedOptimizer::fully_reshardable, ShardedOptimizer::dp_reshardable}) {
    for (const ParallelTarget& target : targets_of(GetParam())) {
      const auto memory = std::make_shared<MemoryFileSystem>();
      TorchDistOptions options;
      options.optimizer = form;
      const Checkpoint made = test::reshard(checkpoint, target, memory, "made", options);
      expect_state_of(made, GetParam());
      EXPECT_EQ(made.args.value.get("use_layer_wise_distributed_optimizer").boolean(), true);
      EXPECT_EQ(made.args.value.get("use_distributed_optimizer").boolean(), false);
      const auto again = std::make_shared<MemoryFileSystem>();
      expect_state_of(test::reshard(made, target_of(2, 1, 2), again, "again"), GetParam());
    }
  }
}

TEST_P(MuonRun, IsWrittenAsRankFoldersOfAnyNumberOfDataRanks) {
  const Checkpoint checkpoint = open_muon(GetParam());
  for (const ParallelTarget& target : targets_of(GetParam())) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    const Checkpoint made = as_rank_folders(checkpoint, target, memory);
    expect_state_of(made, GetParam());
    EXPECT_EQ(made.args.value.get("use_layer_wise_param_layout").boolean(), false);
    const auto back = std::make_shared<MemoryFileSystem>();
    expect_state_of(test::reshard(made, target_of(1, 1, 2), back, "back"), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Saved, MuonRun, testing::ValuesIn(kRuns),
                         [](const auto& suite) { return suite.param; });

TEST(Muon, WithoutALayerWiseOptimizerIsOneOptimizerAfterTheOther) {
  const Checkpoint chain = open_muon("dense_chain");
  expect_state_of(chain, "dense_chain");
  EXPECT_EQ(state_of(chain).param_groups.size(), 2u);
  for (const ParallelTarget& target : targets_of("dense_chain")) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    TorchDistOptions options;
    options.optimizer = ShardedOptimizer::plain;
    const Checkpoint made = test::reshard(chain, target, memory, "made", options);
    expect_state_of(made, "dense_chain");
    const auto again = std::make_shared<MemoryFileSystem>();
    const Checkpoint folders = as_rank_folders(made, target_of(2, 1, 2), again);
    expect_state_of(folders, "dense_chain");
    EXPECT_EQ(folders.args.value.get("use_layer_wise_distributed_optimizer").boolean(), false);
  }
}

TEST(Muon, ExpertsOfSeveralRanksHaveAGroupOfTheirOwn) {
  const Checkpoint checkpoint = open_muon("experts_files");
  for (const auto& target : {target_of(1, 1, 4, 4), target_of(2, 1, 2, 2)}) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    expect_state_of(as_rank_folders(checkpoint, target, memory), "experts");
    const auto other = std::make_shared<MemoryFileSystem>();
    TorchDistOptions options;
    options.optimizer = ShardedOptimizer::dp_reshardable;
    expect_state_of(test::reshard(checkpoint, target, other, "made", options), "experts");
  }
}

TEST(Muon, ParametersGoToAndFroOverTheRanks) {
  // Sizes 1 to 5 over two ranks: 0, 1, 1, 0, 0; experts have ranks of their own.
  const std::vector<SpreadParameter> parameters = {{5}, {4}, {1}, {3}, {2}, {9, true}, {9, true}};
  const std::vector<int64_t> owners = {0, 0, 0, 1, 1, 0, 0};
  EXPECT_EQ(owners_to_and_fro(parameters, 2, 1), owners);
}

// A copy of dense_files, changed.
class ChangedMuon : public testing::Test {
 protected:
  ChangedMuon() { test::copy_tree(test::fixture("muon/dense_files"), *files_, "run"); }
  static std::string file(int64_t tensor, int64_t data) {
    return fmt::format("run/iter_0000005/mp_rank_{:02d}/layer_wise_optimizer_{}.pt", tensor, data);
  }
  std::string content(const std::string& path) const {
    const auto file = files_->open(path);
    std::string bytes(file->size(), '\0');
    file->read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  std::string problem() const { return open_checkpoint(files_, "run").optimizer_problem; }

  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ChangedMuon, AMissingFileIsNamed) {
  files_->remove_all(file(1, 1));
  EXPECT_THAT(problem(), HasSubstr("1 of 4 data ranks' files are missing: "
                                   "mp_rank_01/layer_wise_optimizer_1.pt"));
  EXPECT_THAT(problem_by_structure(files_, "run/iter_0000005"), HasSubstr("layer_wise_optimizer"));
}

TEST_F(ChangedMuon, FilesOfOtherDataRanksDoNotFit) {
  files_->put(file(0, 0), content(file(0, 1)));
  EXPECT_THAT(problem(), HasSubstr("layer_wise_optimizer_0.pt: "));
  EXPECT_THAT(problem(), HasSubstr("expected"));
  const Checkpoint run = open_checkpoint(files_, "run");
  for (const Entry& entry : run.catalog->entries) {
    EXPECT_EQ(entry.role, Role::model);
  }
}

TEST_F(ChangedMuon, DamagedFilesAreRefused) {
  const std::string whole = content(file(0, 0));
  uint64_t refused = 0;
  const uint64_t cases = test::for_random_cases(60, [&](uint64_t number) {
    test::Random random(number);
    std::string bytes = whole;
    for (int64_t i = test::pick(random, 1, 4); i > 0; --i) {
      const auto at =
          static_cast<size_t>(test::pick(random, 0, static_cast<int64_t>(bytes.size()) - 1));
      bytes[at] = static_cast<char>(test::pick(random, 0, 255));
    }
    if (test::chance(random, 30)) bytes.resize(bytes.size() / 2);
    files_->put(file(0, 0), bytes);
    try {
      refused += !open_checkpoint(files_, "run").optimizer_problem.empty();
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
      ++refused;
    }
  });
  EXPECT_GE(refused, cases / 6);
}

}  // namespace
}  // namespace ferry
