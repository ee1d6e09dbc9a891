// The tutorial's stages, on some hundred of MNIST's images.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/load.h"
#include "nemo/checkpoint_names.h"
#include "run.h"

namespace ferry::mnist {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const std::string kMnist = std::string(FERRY_FIXTURES) + "/mnist";

class Tutorial : public testing::Test {
 protected:
  Tutorial() {
    std::string name = (fs::temp_directory_path() / "ferry-mnist-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Tutorial() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  StageOptions stage(Task task, const std::string& run, int64_t steps,
                     const std::string& from = "") const {
    StageOptions options;
    options.task = task;
    options.data = kMnist;
    options.log_dir = path(run);
    options.initial_checkpoint = from;
    options.words = {"--train-iters",
                     std::to_string(steps),
                     "--micro-batch-size",
                     "16",
                     "--global-batch-size",
                     "32",
                     "--eval-interval",
                     "10",
                     "--eval-iters",
                     "1",
                     "--log-interval",
                     "10",
                     "--save-interval",
                     "10",
                     "--lr",
                     "3e-3"};
    return options;
  }
  // Runs a stage, and returns its last checkpoint's folder.
  std::string run(const StageOptions& options) {
    printed_.clear();
    const std::string last = train_stage(options, [&](std::string_view text) { printed_ += text; });
    EXPECT_THAT(last, EndsWith(".ckpt"));
    return last.substr(0, last.size() - 5);
  }
  std::vector<double> losses(const std::string& run, const char* split, const char* name) const {
    std::ifstream file(path(run) + "/example/metrics.json");
    return nlohmann::json::parse(file)[split][name].get<std::vector<double>>();
  }
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path(run) + "/example/checkpoints")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string folder_, printed_;
};

// All tensors of a checkpoint, as bytes.
std::map<std::string, std::string> tensors_in(const std::string& path) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
  std::map<std::string, std::string> tensors;
  std::vector<Region> regions;
  for (const Entry& entry : checkpoint.catalog->entries) {
    std::string& bytes = tensors[entry.name];
    bytes.resize(static_cast<size_t>(entry.elements() * size_bytes(entry.dtype)));
    regions.push_back(whole_region(entry.name, entry.dtype, entry.shape, bytes.data()));
  }
  load(checkpoint, regions);
  return tensors;
}

// The names of tensors that differ, or that one side alone has.
std::vector<std::string> differences(const std::string& a, const std::string& b) {
  const auto left = tensors_in(a), right = tensors_in(b);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : left) {
    const auto other = right.find(name);
    if (other == right.end() || other->second != bytes) names.push_back(name);
  }
  for (const auto& [name, bytes] : right) {
    if (!left.contains(name)) names.push_back(name);
  }
  return names;
}

// Upstream's own assertions: what goes on begins below where it stopped; a new head begins high and
// comes down; and a head that the checkpoint lacks has to be named.
TEST_F(Tutorial, LossesAreOrderedAsInBioNeMosTest) {
  const std::string pretrained = run(stage(Task::autoencoder, "pretrain", 60));
  const auto first = losses("pretrain", "train", "reduced_train_loss");
  ASSERT_THAT(first, SizeIs(60));
  EXPECT_LT(first.back(), 0.75 * first.front());

  run(stage(Task::autoencoder, "continue", 60, pretrained));
  const auto second = losses("continue", "train", "reduced_train_loss");
  EXPECT_LT(second.front(), 0.75 * first.front());
  EXPECT_LT(second.back(), first.back());

  StageOptions head = stage(Task::classifier, "classifier", 80, pretrained);
  EXPECT_THAT([&] { run(head); },
              testing::ThrowsMessage<Error>(HasSubstr("digit_classifier.weight")));
  head.skipped_prefixes = {"digit_classifier"};
  const std::string classifier = run(head);
  const auto third = losses("classifier", "train", "reduced_train_loss");
  EXPECT_GT(third.front(), second.back());
  EXPECT_LT(third.back(), 0.7 * third.front());
  EXPECT_THAT(losses("classifier", "val", "val_loss"), SizeIs(9));  // the end's one, too

  PredictOptions options{kMnist, classifier, path("out"), {}};
  std::string printed;
  const double accuracy = predict_stage(options, [&](std::string_view text) { printed += text; });
  EXPECT_GT(accuracy, 0.4);
  EXPECT_THAT(printed, HasSubstr("test images recognised: "));
  for (const char* file : {"predictions.csv", "confusion.svg"}) {
    EXPECT_TRUE(fs::exists(path("out") + "/" + file)) << file;
  }
  options.checkpoint = pretrained;
  EXPECT_LT(predict_stage(options, [](std::string_view) {}), 0.08);
  EXPECT_TRUE(fs::exists(path("out") + "/digits.png"));
}

TEST_F(Tutorial, ModelsHaveTheTutorialsParameters) {
  const std::string pretrained = run(stage(Task::autoencoder, "pretrain", 10));
  EXPECT_THAT(printed_, HasSubstr("an autoencoder of 101651 parameters"));
  StageOptions head = stage(Task::classifier, "classifier", 10, pretrained);
  head.skipped_prefixes = {"digit_classifier"};
  run(head);
  EXPECT_THAT(printed_, HasSubstr("a classifier of 50475 parameters"));
  EXPECT_THAT(printed_, HasSubstr("settings taken from " + pretrained +
                                  ": hidden_size, num_attention_heads, num_layers, params_dtype"));
}

TEST_F(Tutorial, SettingsComeFromTheCheckpoint) {
  StageOptions narrow = stage(Task::autoencoder, "pretrain", 10);
  narrow.words.insert(narrow.words.end(), {"--hidden-size", "24"});
  StageOptions head = stage(Task::classifier, "classifier", 10, run(narrow));
  head.skipped_prefixes = {"digit_classifier"};
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run(head));
  EXPECT_EQ(checkpoint.catalog->find("linear1.weight")->shape, (Dims{24, 784}));
  EXPECT_EQ(checkpoint.format, Format::nemo);
  EXPECT_EQ(checkpoint.iteration, 10);
}

// Weights that are skipped are those of a new model, the others those of the checkpoint.
TEST_F(Tutorial, SkippedWeightsBeginAnew) {
  const std::string pretrained = run(stage(Task::autoencoder, "pretrain", 10));
  const auto begun = [&](const std::string& name, const std::string& from,
                         const std::vector<std::string>& skipped) {
    StageOptions options = stage(Task::autoencoder, name, 10, from);
    options.skipped_prefixes = skipped;
    options.words.insert(options.words.end(), {"--lr", "0"});
    return tensors_in(run(options));
  };
  const auto trained = tensors_in(pretrained), fresh = begun("fresh", "", {});
  const auto mixed = begun("mixed", pretrained, {"linear4", "linear1.b"});
  for (const char* layer : {"linear1", "linear2", "linear3", "linear4"}) {
    for (const char* part : {".weight", ".bias"}) {
      const std::string name = std::string(layer) + part;
      const bool is_new = name.starts_with("linear4") || name == "linear1.bias";
      EXPECT_TRUE(mixed.at(name) == (is_new ? fresh : trained).at(name)) << name;
      EXPECT_TRUE(fresh.at(name) != trained.at(name)) << name;
    }
  }
}

class Layouts : public Tutorial, public testing::WithParamInterface<std::vector<std::string>> {};

// Stopped and begun again, at each layout, the run is the unbroken one: every bit.
TEST_P(Layouts, AStoppedRunGoesOnAsTheUnbrokenOne) {
  const auto until = [&](const std::string& name, const char* stop) {
    StageOptions options = stage(Task::autoencoder, name, 60);
    options.words.insert(options.words.end(), {"--exit-interval", stop});
    options.words.insert(options.words.end(), GetParam().begin(), GetParam().end());
    return run(options);
  };
  const std::string whole = until("whole", "60");
  const auto expected = losses("whole", "train", "reduced_train_loss");
  for (const auto& [stop, from] : {std::pair("23", 0), std::pair("40", 23), std::pair("60", 40)}) {
    until("broken", stop);
    const auto some = losses("broken", "train", "reduced_train_loss");
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i], expected[static_cast<size_t>(from) + i]) << from + i;
    }
  }
  const auto last = find_resume(*posix_file_system(), path("broken") + "/example/checkpoints", {});
  EXPECT_THAT(differences(*last, whole), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Layouts,
                         testing::Values(std::vector<std::string>{},
                                         std::vector<std::string>{"--data-parallel-size", "2"},
                                         std::vector<std::string>{"--data-parallel-size", "2",
                                                                  "--bf16"}));

// Two ranks take halves of each batch: sums in another order, and the same run otherwise.
TEST_F(Tutorial, TwoRanksDoWhatOneDoes) {
  run(stage(Task::autoencoder, "one", 30));
  StageOptions options = stage(Task::autoencoder, "two", 30);
  options.words.insert(options.words.end(), {"--data-parallel-size", "2"});
  run(options);
  const auto one = losses("one", "train", "reduced_train_loss");
  const auto two = losses("two", "train", "reduced_train_loss");
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 2e-6) << i;
  const auto valid = losses("two", "val", "val_loss");
  EXPECT_THAT(losses("one", "val", "val_loss"),
              testing::Pointwise(testing::DoubleNear(2e-6), valid));
}

TEST_F(Tutorial, TheBestCheckpointsAndTheLastStay) {
  StageOptions options = stage(Task::autoencoder, "pretrain", 60);
  options.save_top_k = 2;
  run(options);
  const auto names = checkpoints("pretrain");
  EXPECT_THAT(names, SizeIs(3));
  const auto losses_of_all = losses("pretrain", "train", "reduced_train_loss");
  std::vector<double> saved;
  for (size_t i = 9; i < 60; i += 10) saved.push_back(losses_of_all[i]);
  std::sort(saved.begin(), saved.end());
  for (const std::string& name : names) {
    EXPECT_THAT(name, Not(HasSubstr("unfinished")));
    const auto value = value_in_name(name, "reduced_train_loss");
    ASSERT_TRUE(value) << name;
    if (name.ends_with("-last")) {
      EXPECT_THAT(name, HasSubstr("-epoch=2-consumed_samples=1920.0"));
    } else {
      EXPECT_LE(*value, saved[1] + 5.1e-5) << name;
    }
  }
  // A later process knows them by their names.
  options.words.insert(options.words.end(), {"--train-iters", "70"});
  run(options);
  EXPECT_THAT(checkpoints("pretrain"), SizeIs(3));
}

// As killed in the middle of a save: what the marker marks goes, and the run goes on from what is
// whole.
TEST_F(Tutorial, WhatIsUnfinishedIsPassedOverAndRemoved) {
  const std::string last = run(stage(Task::autoencoder, "pretrain", 20));
  const std::string folder = fs::path(last).parent_path();
  const std::string half =
      folder + "/example--reduced_train_loss=0.0100-epoch=0-consumed_samples=9.0";
  fs::create_directories(half + "/context");
  std::ofstream(half + "-unfinished").close();
  const std::string half_last = folder + "/z-last";
  fs::copy(last, half_last, fs::copy_options::recursive);
  std::ofstream(half_last + "-unfinished").close();
  EXPECT_THROW(open_checkpoint(posix_file_system(), half_last), Error);
  run(stage(Task::autoencoder, "pretrain", 30));
  EXPECT_THAT(printed_, HasSubstr("loading checkpoint from " + last + " at iteration 20"));
  EXPECT_THAT(checkpoints("pretrain"), Each(Not(HasSubstr("unfinished"))));
  EXPECT_FALSE(fs::exists(half));
  EXPECT_FALSE(fs::exists(half_last));
}

TEST_F(Tutorial, WithoutResumeARunHasAFolderOfItsOwn) {
  run(stage(Task::autoencoder, "pretrain", 10));
  StageOptions options = stage(Task::autoencoder, "pretrain", 10);
  options.resume_if_exists = false;
  const std::string last = run(options);
  EXPECT_TRUE(std::regex_search(
      last, std::regex(R"(/example/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d/checkpoints/example--)")))
      << last;
  options.resume_if_exists = true;
  options.resume_ignore_no_checkpoint = false;
  options.log_dir = path("elsewhere");
  EXPECT_THROW(run(options), Error);
}

// 429 batches of 128 are an epoch of 55000; here 20 of 32 are one of 660, and the next repeats
// them.
TEST_F(Tutorial, EpochsRepeatTheirOrder) {
  StageOptions options = stage(Task::autoencoder, "pretrain", 41);
  options.words.insert(options.words.end(), {"--lr", "0"});
  run(options);
  const auto all = losses("pretrain", "train", "reduced_train_loss");
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(all[i], all[20 + i]) << i;
  EXPECT_NE(all[0], all[1]);
  std::ifstream file(path("pretrain") + "/example/metrics.json");
  EXPECT_THAT(nlohmann::json::parse(file)["train"]["logged_metrics"], SizeIs(2));
}

TEST_F(Tutorial, WhatDoesNotFitIsReported) {
  StageOptions options = stage(Task::autoencoder, "pretrain", 10);
  options.data = path("nowhere");
  EXPECT_THAT([&] { run(options); }, testing::ThrowsMessage<Error>(HasSubstr("nowhere")));
  options = stage(Task::autoencoder, "pretrain", 10);
  options.words.insert(options.words.end(), {"--global-batch-size", "1024"});
  EXPECT_THAT([&] { run(options); }, testing::ThrowsMessage<Error>(HasSubstr("1024 samples")));
  options = stage(Task::autoencoder, "pretrain", 10, path("missing"));
  EXPECT_THAT([&] { run(options); }, testing::ThrowsMessage<Error>(HasSubstr("missing")));
}

}  // namespace
}  // namespace ferry::mnist
