// What `ferry inspect` shows of a training run around a model. fixtures/foreign/training: written
// by transformers' Trainer, Accelerate and Lightning (tests/interop/fixtures/make_trainer.py).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kParameters = 5232;  // of fixtures/foreign/model

struct TrainingFolder : Program {
  json inspect(const std::string& what) const {
    const Outcome outcome = ferry("inspect " + what + " --json");
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    return json::parse(outcome.out, nullptr, false);
  }
  // A copy of a fixture that may be changed.
  std::string copy(const std::string& name) const {
    fs::copy(fixture("foreign/training/" + name), path("copy"), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(path("copy"))) {
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add);
    }
    return path("copy");
  }
};

std::vector<std::string> names_of_parts(const json& report) {
  std::vector<std::string> names;
  for (const json& part : report["training"]["beside"]) names.push_back(part["name"]);
  return names;
}

TEST_F(TrainingFolder, TrainersCheckpointHasStepAndEpoch) {
  const json report = inspect(fixture("foreign/training/trainer/checkpoint-4"));
  EXPECT_EQ(report["format"], "hf");
  EXPECT_EQ(report["parameters"], kParameters);
  EXPECT_EQ(report["training"]["program"], "Trainer");
  EXPECT_EQ(report["training"]["step"], 4);
  EXPECT_EQ(report["training"]["last_step"], 6);
  EXPECT_EQ(report["training"]["epoch"], 1.0);
  EXPECT_THAT(names_of_parts(report),
              ElementsAre("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth",
                          "training_args.bin"));
  const Outcome text = ferry("inspect " + fixture("foreign/training/trainer/checkpoint-4"));
  EXPECT_THAT(text.out, AllOf(HasSubstr("step 4 of 6, epoch 1 (Trainer)"),
                              HasSubstr("trainer_state.json, optimizer.pt, scheduler.pt")));
}

TEST_F(TrainingFolder, OfARunTheLastCheckpointCounts) {
  const std::string run = copy("trainer");
  fs::copy(run + "/checkpoint-4", run + "/checkpoint-12", fs::copy_options::recursive);
  fs::create_directory(run + "/checkpoint-best");
  EXPECT_EQ(inspect(run)["path"], run + "/checkpoint-12");
  EXPECT_EQ(inspect(run + " --iteration 4")["path"], run + "/checkpoint-4");
  EXPECT_EQ(inspect(run + " --iteration checkpoint-4")["path"], run + "/checkpoint-4");
  EXPECT_EQ(ferry("inspect " + run + " --iteration 5").code, 3);
}

TEST_F(TrainingFolder, RanksAreCounted) {
  const std::string saved = copy("trainer") + "/checkpoint-4";
  fs::rename(saved + "/rng_state.pth", saved + "/rng_state_0.pth");
  write(saved + "/rng_state_1.pth", "");
  write(saved + "/rng_state_x.pth", "");
  fs::create_directory(saved + "/global_step4");
  const json parts = inspect(saved)["training"]["beside"];
  EXPECT_THAT(parts, testing::Contains(json{
                         {"kind", "random numbers"}, {"name", "rng_state_*.pth"}, {"count", 2}}));
  EXPECT_THAT(parts, testing::Contains(json{{"kind", "model and optimizer by DeepSpeed"},
                                            {"name", "global_step4"},
                                            {"count", 1}}));
}

TEST_F(TrainingFolder, ADamagedStateIsANote) {
  const std::string saved = copy("trainer") + "/checkpoint-4";
  const std::string huge(200000, '[');
  for (const std::string& text :
       {std::string("{\"global_step\": 4,"), std::string("[]"), std::string("{}"),
        std::string("{\"global_step\": -4, \"epoch\": \"x\"}"), std::string("null"), huge,
        std::string("{\"global_step\": 99999999999999999999999}"), std::string(),
        std::string("{\"global_step\": 4.5}")}) {
    write(saved + "/trainer_state.json", text);
    const json report = inspect(saved);
    EXPECT_EQ(report["parameters"], kParameters);
    EXPECT_EQ(report["training"]["step"], nullptr) << text.substr(0, 80);
    EXPECT_THAT(report["notes"], testing::Contains(HasSubstr("trainer_state.json")))
        << text.substr(0, 80);
  }
  write(saved + "/trainer_state.json",
        R"({"global_step": 4, "epoch": NaN, "log_history": [{"loss": Infinity}], "max_steps": 0})");
  const json report = inspect(saved);
  EXPECT_EQ(report["training"]["step"], 4);
  EXPECT_EQ(report["training"]["epoch"], nullptr);
}

TEST_F(TrainingFolder, AcceleratesFolderIsAModelWithoutConfig) {
  const json report = inspect(fixture("foreign/training/accelerate"));
  EXPECT_EQ(report["parameters"], kParameters);
  EXPECT_EQ(report["training"]["step"], nullptr);
  EXPECT_THAT(names_of_parts(report), ElementsAre("optimizer.bin", "random_states_0.pkl"));
}

TEST_F(TrainingFolder, FsdpsModelIsInAFolderOfItsOwn) {
  const json report = inspect(fixture("foreign/training/accelerate_fsdp"));
  EXPECT_EQ(report["format"], "dcp");
  EXPECT_EQ(report["path"], fixture("foreign/training/accelerate_fsdp/pytorch_model_fsdp_0"));
  EXPECT_EQ(report["parameters"], kParameters);
  EXPECT_THAT(names_of_parts(report), ElementsAre("optimizer_0", "pytorch_model_fsdp_0"));
  const std::string several = copy("accelerate_fsdp");
  fs::copy(several + "/pytorch_model_fsdp_0", several + "/pytorch_model_fsdp_1");
  const Outcome refused = ferry("inspect " + several);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("pytorch_model_fsdp_0, pytorch_model_fsdp_1; give the path of one"));
}

TEST_F(TrainingFolder, LightningsFileHasItsStep) {
  const json report = inspect(fixture("foreign/training/lightning.ckpt"));
  EXPECT_EQ(report["format"], "pt");
  EXPECT_EQ(report["parameters"], kParameters);
  EXPECT_EQ(report["training"]["step"], 3);
  EXPECT_EQ(report["training"]["epoch"], 1.0);
  EXPECT_THAT(std::string(report["training"]["program"]), HasSubstr("Lightning 2."));
  // By name alone, without Lightning's version, it is a file like any other.
  const json other = inspect(fixture("foreign/lightning.ckpt"));
  EXPECT_EQ(other["parameters"], kParameters);
  EXPECT_EQ(other["training"], nullptr);
}

TEST_F(TrainingFolder, AModelAloneWasLeftByNoTraining) {
  EXPECT_EQ(inspect(fixture("foreign/model"))["training"], nullptr);
  fs::copy(fixture("foreign/model"), path("model"));
  write(path("model/optimizer.pt"), "");  // a name that everybody uses
  EXPECT_EQ(inspect(path("model"))["training"], nullptr);
}

}  // namespace
