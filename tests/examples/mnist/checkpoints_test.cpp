// Names, markers and settings of the tutorial's checkpoints.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "nemo/checkpoint_names.h"
#include "nemo/config.h"
#include "tests/io/memory_file_system.h"

namespace ferry::mnist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(CheckpointNames, HoldValueEpochAndSamples) {
  const std::string name = checkpoint_name("example", "reduced_train_loss", 0.05234, 1, 3200);
  EXPECT_EQ(name, "example--reduced_train_loss=0.0523-epoch=1-consumed_samples=3200.0");
  EXPECT_EQ(value_in_name(name + "-last", "reduced_train_loss"), 0.0523);
  EXPECT_EQ(value_in_name(name, "val_loss"), std::nullopt);
  EXPECT_EQ(value_in_name("run--val_loss=-epoch=0", "val_loss"), std::nullopt);
  EXPECT_EQ(marker_of("a/run-EMA.ckpt"), "a/run-unfinished");
}

class Resume : public testing::Test {
 protected:
  void put_checkpoint(const std::string& name) {
    memory_->create_folder("run/" + name);
    memory_->create_folder("run/" + name + "/weights");
    memory_->put("run/" + name + "/weights/metadata.json", "{}");
  }
  void mark(const std::string& name) { memory_->put("run/" + name + "-unfinished", ""); }
  std::string found(const ResumeOptions& options = {}) {
    try {
      return find_resume(*memory_, "run", options).value_or("nothing");
    } catch (const Error& error) {
      return error.what();
    }
  }

  Resume() { memory_->create_folder("run"); }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(Resume, TakesTheLastOne) {
  EXPECT_EQ(found(), "nothing");
  EXPECT_THAT(found({.ignore_no_checkpoint = false}), HasSubstr("has no last checkpoint"));
  put_checkpoint("a-consumed_samples=32.0");
  EXPECT_EQ(found(), "nothing");
  put_checkpoint("a-consumed_samples=32.0-last");
  EXPECT_EQ(found(), "run/a-consumed_samples=32.0-last");
  put_checkpoint("a-consumed_samples=64.0-last");
  EXPECT_EQ(found(), "run/a-consumed_samples=64.0-last");
  mark("a-consumed_samples=64.0-last");
  EXPECT_EQ(found(), "run/a-consumed_samples=32.0-last");
  EXPECT_EQ(found({.from_path = "b"}), "b");
  EXPECT_EQ(found({.if_exists = false}), "nothing");
  mark("a-consumed_samples=32.0-last");
  EXPECT_THAT(found(), HasSubstr("unfinished"));
}

TEST_F(Resume, KnowsTheEndOfARun) {
  put_checkpoint("a-last");
  put_checkpoint("a-end");
  EXPECT_THAT(found(), HasSubstr("is over"));
  EXPECT_EQ(found({.past_end = true}), "run/a-last");
  put_checkpoint("b-end");
  EXPECT_EQ(found({.past_end = true}), "run/b-end");
}

TEST_F(Resume, WhatIsUnfinishedGoes) {
  for (const char* name : {"a", "b", "b-last"}) put_checkpoint(name);
  mark("b");
  mark("c");  // of what is gone already
  EXPECT_THAT(finished_checkpoints(*memory_, "run"), ElementsAre("a", "b-last"));
  EXPECT_THAT(remove_unfinished(*memory_, "run"), UnorderedElementsAre("b", "c"));
  EXPECT_THAT(memory_->list("run"), ElementsAre("a", "b-last"));
}

class Settings : public testing::Test {
 protected:
  Settings() {
    memory_->create_folder("parent");
    memory_->create_folder("parent/context");
  }
  // What a parent with such a configuration leaves to a classifier.
  std::vector<std::string> load(const std::string& yaml) {
    memory_->remove_all("parent/context/model.yaml");
    memory_->put("parent/context/model.yaml", yaml);
    return load_settings(*memory_, "parent", config_);
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  Config config_{Task::classifier};
};

TEST_F(Settings, OfBothAreTakenButForTheRunsOwn) {
  Config parent(Task::autoencoder);
  parent.fields["hidden_size"] = int64_t{32};
  parent.fields["num_layers"] = int64_t{2};
  parent.fields["bf16"] = true;
  parent.fields["fp16"] = true;
  parent.fields["initial_ckpt_path"] = std::string("elsewhere");
  parent.list("initial_ckpt_skip_keys_with_these_prefixes") = {"x"};
  parent.fields["unknown_here"] = int64_t{1};
  const auto taken = load(context_files(parent, default_arguments()).front().text);
  EXPECT_THAT(taken, UnorderedElementsAre("hidden_size", "num_attention_heads", "num_layers",
                                          "params_dtype"));
  EXPECT_EQ(config_.number("hidden_size"), 32);
  EXPECT_EQ(config_.number("num_layers"), 2);
  const Config fresh(Task::classifier);
  for (const char* own : {"bf16", "fp16", "model_cls", "loss_cls", "initial_ckpt_path",
                          "initial_ckpt_skip_keys_with_these_prefixes"}) {
    EXPECT_EQ(config_.fields.at(own), fresh.fields.at(own)) << own;
  }
  EXPECT_FALSE(config_.fields.contains("unknown_here"));
}

TEST_F(Settings, OfAnotherKindAreRefused) {
  EXPECT_THAT([&] { load("config:\n  hidden_size: wide\n"); },
              testing::ThrowsMessage<Error>(HasSubstr("field hidden_size is not a whole number")));
  EXPECT_THAT([&] { load("config:\n  hidden_size: -1\n"); },
              testing::ThrowsMessage<Error>(HasSubstr("hidden_size is -1")));
  memory_->remove_all("parent/context/model.yaml");
  EXPECT_THROW(load_settings(*memory_, "parent", config_), Error);
  EXPECT_THAT(load("config: 3\n"), ElementsAre());
}

}  // namespace
}  // namespace ferry::mnist
