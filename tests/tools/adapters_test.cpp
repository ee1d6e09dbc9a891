// Models with an adapter inside, as the program meets them. fixtures/adapters:
// tests/interop/fixtures/make_adapters.py.
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

struct AdapterCommands : Program {
  std::string config = " --config " + fixture("foreign/model");

  // Holds the tensors of the model that was adapted against those of `model`.
  void expect_model(const std::string& model) const {
    const Outcome same = ferry("diff " + model + " " + fixture("foreign/model"));
    EXPECT_EQ(same.code, 0) << same.out << same.err;
  }
};

TEST_F(AdapterCommands, InspectCountsThemApart) {
  for (const std::string name : {"in_model", "dcp", "ranks", "old.pt"}) {
    const std::string source = fixture("adapters/" + name);
    EXPECT_THAT(ferry("inspect " + source).out,
                AllOf(HasSubstr("parameters   5,232\n"),
                      HasSubstr("adapter      LoRA of rank 2 on q_proj, v_proj: 8 tensors, 224 "
                                "parameters\n")));
    const json seen = json::parse(ferry("inspect --json " + source).out);
    EXPECT_EQ(seen["parameters"], 5232);
    EXPECT_EQ(seen["adapter"]["tensors"], 8);
    EXPECT_EQ(seen["adapter"]["parameters"], 224);
    EXPECT_EQ(seen["adapter"]["ranks"], json({2}));
    EXPECT_EQ(seen["adapter"]["targets"], json({"q_proj", "v_proj"}));
    EXPECT_EQ(ferry("verify " + source).code, 0);
  }
  EXPECT_EQ(json::parse(ferry("inspect --json " + fixture("foreign/model")).out)["adapter"],
            nullptr);
}

TEST_F(AdapterCommands, AnAdapterAloneHasNoParametersOfAModel) {
  const Outcome seen = ferry("inspect " + fixture("other_programs/adapter"));
  EXPECT_THAT(seen.out, AllOf(HasSubstr(", without the model"), Not(HasSubstr("\nparameters"))));
}

TEST_F(AdapterCommands, ConvertWritesTheModelAloneOnRequestOnly) {
  for (const std::string name : {"in_model", "dcp", "ranks", "many.pt", "old.pt"}) {
    const std::string options = name == "in_model" ? "" : config;
    for (const std::string to : {"hf", "torch_dist", "torch"}) {
      const std::string command = "convert " + fixture("adapters/" + name) + " " + path(name + to) +
                                  options + " --to " + to;
      const Outcome refused = ferry(command);
      EXPECT_EQ(refused.code, 5) << command << refused.out;
      EXPECT_THAT(refused.err, AllOf(HasSubstr("holds a model and an adapter of it"),
                                     HasSubstr("--base-only"), HasSubstr("--to safetensors")));
      EXPECT_FALSE(fs::exists(path(name + to)));
      const Outcome written = ferry(command + " --base-only");
      EXPECT_EQ(written.code, 0) << command << written.err;
      EXPECT_THAT(written.out, HasSubstr("note: --base-only: the adapter is left out ("));
      EXPECT_THAT(written.out, HasSubstr("wrote " + std::string(to == "hf" ? "21 " : "")));
      expect_model(path(name + to));
    }
  }
}

TEST_F(AdapterCommands, SafetensorsKeepAll) {
  for (const std::string name : {"in_model", "dcp", "many.pt"}) {
    const std::string source = fixture("adapters/" + name);
    const Outcome written = ferry("convert " + source + " " + path(name) + " --to safetensors");
    EXPECT_EQ(written.code, 0) << written.err;
    const json before = json::parse(ferry("inspect --json " + source).out);
    const json after = json::parse(ferry("inspect --json " + path(name)).out);
    EXPECT_EQ(after["adapter"]["tensors"], before["adapter"]["tensors"]);
    EXPECT_EQ(after["parameters"], before["parameters"]);
  }
}

TEST_F(AdapterCommands, BaseOnlyIsForSuchModels) {
  const Outcome plain =
      ferry("convert " + fixture("foreign/model") + " " + path("out") + " --to hf --base-only");
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("holds no adapter"));
  const Outcome tensors = ferry("convert " + fixture("adapters/dcp") + " " + path("out") +
                                " --to safetensors --base-only");
  EXPECT_EQ(tensors.code, 2);
  EXPECT_THAT(tensors.err, HasSubstr("--base-only"));
}

// Classes that are not known here may have adapters of their own (Phi-4-multimodal); what PEFT put
// around a whole model is none of a class.
TEST_F(AdapterCommands, OfUnknownClassesAreCopiedAndSaid) {
  fs::copy(fixture("adapters/in_model"), path("model"));
  write(path("model/config.json"), R"({"model_type": "unheard_of"})");
  const std::string command = "convert " + path("model") + " " + path("out") + " --to hf";
  EXPECT_EQ(ferry(command).code, 5);
  std::string file = read(path("model/model.safetensors"));
  const std::string outer = "base_model.model.";
  for (size_t at; (at = file.find(outer)) != std::string::npos;) {
    file.replace(at, outer.size(), "network.network.x");
  }
  write(path("model/model.safetensors"), file);
  const Outcome copied = ferry(command);
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_THAT(copied.out, AllOf(HasSubstr("wrote 29 tensors"), HasSubstr("holds an adapter (LoRA "
                                                                         "of rank 2")));
}

// A model with an adapter in files of its own, which transformers loads with it.
TEST_F(AdapterCommands, NextToAModelIsNoAdapterAlone) {
  fs::copy(fixture("foreign/model"), path("model"));
  fs::copy(fixture("other_programs/adapter/adapter_config.json"),
           path("model/adapter_config.json"));
  const std::string command = "convert " + path("model") + " " + path("out") + " --to hf";
  const Outcome refused = ferry(command);
  EXPECT_EQ(refused.code, 5);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("an adapter in files of its own"),
                                 HasSubstr("--base-only"), Not(HasSubstr("no model"))));
  const Outcome written = ferry(command + " --base-only");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_FALSE(fs::exists(path("out/adapter_config.json")));
  expect_model(path("out"));
}

TEST_F(AdapterCommands, DiffHoldsTheModelAgainstItself) {
  for (const std::string sides : {"a b", "b a"}) {
    const std::string with = fixture("adapters/in_model"), plain = fixture("foreign/model");
    const Outcome outcome =
        ferry("diff " + (sides == "a b" ? with + " " + plain : plain + " " + with));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("29 tensors: 21 equal"), HasSubstr("8 only in"),
                                   HasSubstr("holds an adapter (LoRA of rank 2 on q_proj")));
  }
}

TEST_F(AdapterCommands, ReshardKeepsAll) {
  const std::string source = fixture("adapters/dcp");
  EXPECT_EQ(ferry("reshard " + source + " " + path("out") + " --to dcp").code, 0);
  EXPECT_EQ(ferry("diff " + source + " " + path("out")).code, 0);
}

TEST_F(AdapterCommands, ModelsToFillFromHaveNone) {
  const Outcome outcome = ferry("convert " + fixture("foreign/model") + " " + path("out") +
                                " --to hf --fill-from " + fixture("adapters/in_model"));
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("adapters/in_model"), HasSubstr("adapter")));
}

}  // namespace
