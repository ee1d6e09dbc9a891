// The optimizer's state of PyTorch's distributed checkpoints that name their parameters, of files
// that Accelerate and torchtitan wrote (tests/interop/fixtures/make_trainer.py,
// tests/interop/checkpoints/check_dcp_optimizers.py).
#include "convert/state_dict/named_optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kAccelerate = test::fixture("foreign/training/accelerate_fsdp");
const std::string kTitan = test::fixture("foreign/titan_dcp");

std::map<std::string, const Entry*> by_name(const Checkpoint& checkpoint) {
  std::map<std::string, const Entry*> entries;
  for (const Entry& entry : checkpoint.catalog->entries) entries[entry.name] = &entry;
  return entries;
}

TEST(NamedOptimizer, OfAccelerateBelongsToTheTensorsNextToIt) {
  Checkpoint checkpoint = open_checkpoint(posix_file_system(), kAccelerate);
  EXPECT_EQ(checkpoint.optimizer, OptimizerLayout::plain);
  EXPECT_THAT(name_optimizer(checkpoint), IsEmpty());
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(checkpoint.optimizer_steps, 1);
  const Value groups = checkpoint.param_groups.value;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].get("lr").real(), 1e-3);
  EXPECT_EQ(groups[0].get("eps").real(), 1e-8);
  EXPECT_EQ(groups[0].get("weight_decay").real(), 0.01);
  EXPECT_EQ(groups[0].get("betas")[1].real(), 0.999);
  // What PyTorch gathered of it when it was saved.
  const Checkpoint truth = open_checkpoint(posix_file_system(), kAccelerate + ".safetensors");
  const auto entries = by_name(checkpoint);
  size_t moments = 0;
  for (const Entry& entry : truth.catalog->entries) {
    std::string name = "model." + entry.name;
    for (const std::string kind : {"optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq."}) {
      if (entry.name.starts_with(kind)) {
        name = kind + "model." + entry.name.substr(kind.size());
        ++moments;
      }
    }
    ASSERT_TRUE(entries.contains(name)) << name;
    EXPECT_EQ(read_tensor(checkpoint.catalog, *entries.at(name), 1 << 20),
              read_tensor(truth.catalog, entry, 1 << 20))
        << name;
  }
  EXPECT_EQ(moments, 42u);
}

// Two groups, a key a parameter and member; the model's names have no prefix.
TEST(NamedOptimizer, OfTorchtitanHasItsGroups) {
  Checkpoint checkpoint = open_checkpoint(posix_file_system(), kTitan);
  EXPECT_EQ(checkpoint.iteration, 7);
  EXPECT_THAT(name_optimizer(checkpoint), IsEmpty());
  EXPECT_EQ(checkpoint.optimizer_steps, 7);
  const Value groups = checkpoint.param_groups.value;
  ASSERT_EQ(groups.size(), 2u);
  std::vector<double> decays;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].get("lr").real(), 1e-3);
    EXPECT_EQ(groups[i].get("betas")[1].real(), 0.95);
    decays.push_back(groups[i].get("weight_decay").real().value_or(-1));
  }
  std::ranges::sort(decays);
  EXPECT_THAT(decays, ElementsAre(0.0, 0.1));
  size_t moments = 0;
  for (const auto& [name, entry] : by_name(checkpoint)) {
    if (entry->role == Role::model) {
      ++moments;
      EXPECT_EQ(by_name(checkpoint).count("optimizer.state.exp_avg_sq." + name), 1u) << name;
    }
  }
  EXPECT_EQ(moments, 12u);
}

// Names alone; no state that is read.
Checkpoint of_names(const std::vector<std::string>& names) {
  Checkpoint checkpoint;
  checkpoint.format = Format::dcp;
  for (const std::string& name : names)
    checkpoint.catalog.edit().entries.push_back({name, DType::f32, {2}, {}, Role::model});
  return checkpoint;
}

TEST(NamedOptimizer, WhatCountsIsNotGuessed) {
  Checkpoint checkpoint =
      of_names({"model.w", "optim.state.0.exp_avg", "optim.state.0.exp_avg_sq"});
  name_optimizer(checkpoint);
  EXPECT_THAT(checkpoint.optimizer_problem,
              HasSubstr("counts parameters and names none (optim.state.0.exp_avg)"));
}

TEST(NamedOptimizer, OfTwoModelsOrNoneIsRefused) {
  Checkpoint two = of_names({"model.w", "ema.w", "optim.state.w.exp_avg"});
  name_optimizer(two);
  EXPECT_THAT(two.optimizer_problem, HasSubstr("under 'ema.' as well as under 'model.'"));
  Checkpoint none = of_names({"model.v", "optim.state.w.exp_avg"});
  name_optimizer(none);
  EXPECT_THAT(none.optimizer_problem,
              HasSubstr("the state of w, which is not a tensor of the model"));
  Checkpoint twice = of_names({"w", "optim.state.w.exp_avg", "optimizer_1.state.w.exp_avg"});
  name_optimizer(twice);
  EXPECT_THAT(twice.optimizer_problem, HasSubstr("is there twice, in optim and in optimizer_1"));
}

TEST(NamedOptimizer, OtherStateIsReported) {
  Checkpoint checkpoint = of_names({"app.model._orig_mod.a", "app.model._orig_mod.b",
                                    "app.optim.state.a.exp_avg", "app.optim.state.a.max_exp_avg_sq",
                                    "app.optim.state.b.exp_avg", "app.optim.state.c.exp_avg"});
  const auto warnings = name_optimizer(checkpoint);
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(checkpoint.catalog->entries[2].name, "optimizer.state.exp_avg.app.model._orig_mod.a");
  EXPECT_EQ(checkpoint.catalog->entries[2].role, Role::optimizer);
  EXPECT_THAT(warnings, Contains(HasSubstr("1 parameters that the model has not is left out: c")));
  EXPECT_THAT(warnings, Contains(HasSubstr("max_exp_avg_sq of 1 parameters is left out")));
}

// Megatron-LM's order of the parts of a name, which ferry writes, too.
TEST(NamedOptimizer, OtherNamesStayAsTheyAre) {
  Checkpoint checkpoint = of_names({"w.weight", "optimizer.state.exp_avg.w.weight"});
  EXPECT_THAT(name_optimizer(checkpoint), IsEmpty());
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(checkpoint.catalog->entries[1].name, "optimizer.state.exp_avg.w.weight");
}

// A copy of Accelerate's folder, changed.
class ChangedAccelerate : public testing::Test {
 protected:
  ChangedAccelerate() { test::copy_tree(kAccelerate, *files_, "run"); }
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ChangedAccelerate, AModelOpensWithoutItsOptimizersFiles) {
  files_->remove_all("run/optimizer_0/__1_0.distcp");
  const Checkpoint checkpoint = open_checkpoint(files_, "run");
  EXPECT_THAT(checkpoint.optimizer_problem, HasSubstr("data files that its .metadata names"));
  EXPECT_THAT(checkpoint.damage, ElementsAre(checkpoint.optimizer_problem));
  EXPECT_EQ(checkpoint.catalog->entries.size(), 21u);
  EXPECT_EQ(checkpoint.optimizer, OptimizerLayout::none);
}

TEST_F(ChangedAccelerate, DamageIsRefused) {
  const std::string path = "run/optimizer_0/.metadata";
  const std::string whole = read_file(*files_, path, 1 << 20);
  for (size_t at = 0; at < whole.size(); at += 331) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    if (at % 2 == 0) bytes.resize(at);
    files_->put(path, bytes);
    try {
      Checkpoint checkpoint = open_checkpoint(files_, "run");
      name_optimizer(checkpoint);
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
    }
  }
}

}  // namespace
}  // namespace ferry
