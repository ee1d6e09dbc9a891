// One model twice: with fused experts, as transformers holds them, and with single ones, as files
// on the hub have them. fixtures/wild/qwen3_moe_fp8_fused as values is the first; a run that is
// made of it becomes the second.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/checkpoint.h"
#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

struct FusedExperts : Program {
  std::string fused, run, single;

  void SetUp() override {
    Program::SetUp();
    fused = path("fused");
    run = path("run");
    single = path("single");
    done("convert " + fixture("wild/qwen3_moe_fp8_fused") + " " + fused + " --to hf --dtype bf16");
    done("convert " + fused + " " + run + " --to torch_dist");
    done("convert " + run + " " + single + " --to hf");
  }
  std::string done(const std::string& command) const {
    const Outcome outcome = ferry(command);
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome.out;
  }
  void expect_equal(const std::string& a, const std::string& b, const std::string& tensors) const {
    EXPECT_THAT(done("diff " + a + " " + b), HasSubstr(tensors + " equal;")) << a << " " << b;
  }
  static bool has(const std::string& folder, const std::string& name) {
    const auto checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), folder);
    return checkpoint.catalog->find(name) != nullptr;
  }
};

constexpr const char* kFused = "model.layers.0.mlp.experts.gate_up_proj";
constexpr const char* kSingle = "model.layers.0.mlp.experts.7.up_proj.weight";

TEST_F(FusedExperts, AreTheSameTensorsToDiff) {
  ASSERT_TRUE(has(fused, kFused));
  ASSERT_TRUE(has(single, kSingle));
  expect_equal(fused, single, "135 tensors: 135");
  expect_equal(single, fused, "135 tensors: 135");
  EXPECT_THAT(done("diff " + fused + " " + single), HasSubstr("8 tensors of fused experts"));
  expect_equal(fused, fused, "47 tensors: 47");
}

TEST_F(FusedExperts, AreComparedWithoutAPrefix) {
  done("reshard " + fused + " " + path("dcp") + " --to dcp --rename '*=model.*'");
  ASSERT_TRUE(has(path("dcp"), std::string("model.") + kFused));
  expect_equal(path("dcp"), single, "135 tensors: 135");
  expect_equal(single, path("dcp"), "135 tensors: 135");
  EXPECT_THAT(done("diff " + path("dcp") + " " + single), HasSubstr("compared without 'model.'"));
}

TEST_F(FusedExperts, AreQuantisedOneByOne) {
  const std::string out = done("convert " + fused + " " + path("a") + " --to hf --quantize fp8");
  EXPECT_THAT(out, Not(HasSubstr("that are fused")));
  done("convert " + single + " " + path("b") + " --to hf --quantize fp8");
  done("convert " + fixture("wild/qwen3_moe_fp8_fused") + " " + path("c") +
       " --to hf --dtype bf16 --quantize fp8");
  expect_equal(path("a"), path("b"), "247 tensors: 247");
  expect_equal(path("c"), path("b"), "247 tensors: 247");
  EXPECT_TRUE(has(path("a"), std::string(kSingle) + "_scale_inv"));
  const auto left = [&](const char* made) {
    return json::parse(read(path(made) + "/config.json"))["quantization_config"];
  };
  EXPECT_EQ(left("a"), left("b"));
}

TEST_F(FusedExperts, OfOtherModelsStayAndAreNamed) {
  json config = json::parse(read(fused + "/config.json"));
  config["model_type"] = "unheard_of";
  write(fused + "/config.json", config.dump());
  EXPECT_THAT(done("convert " + fused + " " + path("a") + " --to hf --quantize fp8"),
              HasSubstr("8 tensors of three axes (experts that are fused) are not quantised: "
                        "model.layers.0.mlp.experts.down_proj, "));
}

// granitemoe's are called neither experts nor otherwise known.
TEST_F(FusedExperts, OfAnyNameAreNamed) {
  done("reshard " + fused + " " + path("dcp") +
       " --to dcp --rename 'model.layers.*.mlp.experts.down_proj=model.layers.*.moe.out.weight'");
  json config = json::parse(read(fused + "/config.json"));
  config["model_type"] = "unheard_of";
  write(fused + "/config.json", config.dump());
  EXPECT_THAT(done("convert " + path("dcp") + " " + path("a") +
                   " --to hf --quantize fp8 --config " + fused),
              HasSubstr("model.layers.0.moe.out.weight, "));
}

// A language model by itself, and the same as a part of a larger one.
TEST_F(FusedExperts, AreComparedWithoutAModuleInBetween) {
  for (const std::string names : {"model.*=model.language_model.*", "*=language_model.*"}) {
    done("reshard " + single + " " + path("part") + " --to dcp --overwrite --rename '" + names +
         "'");
    for (const std::string& other : {single, fused}) {
      expect_equal(path("part"), other, "135 tensors: 135");
      expect_equal(other, path("part"), "135 tensors: 135");
    }
    EXPECT_THAT(done("diff " + path("part") + " " + single),
                HasSubstr("its names are compared without 'language_model.'"));
  }
  EXPECT_THAT(done("diff " + single + " " + fused), Not(HasSubstr("compared without")));
}

TEST_F(FusedExperts, AreFilledUpInTheOriginalsForm) {
  const std::string begin = "convert ", fill = " --to hf --fill-from ";
  done(begin + single + " " + path("a") + fill + fused);
  expect_equal(path("a"), fused, "47 tensors: 47");
  EXPECT_TRUE(has(path("a"), kFused));
  done(begin + fused + " " + path("b") + fill + single);
  expect_equal(path("b"), single, "135 tensors: 135");
  EXPECT_TRUE(has(path("b"), kSingle));
  done(begin + run + " " + path("c") + fill + fused);
  expect_equal(path("c"), fused, "47 tensors: 47");
}

// Matrices are square here: without the model's type nobody knows whether they are transposed.
TEST_F(FusedExperts, WhoseOrientationIsNotKnownAreRefused) {
  json config = json::parse(read(fused + "/config.json"));
  config["model_type"] = "unheard_of";
  write(fused + "/config.json", config.dump());
  const Outcome outcome =
      ferry("convert " + single + " " + path("a") + " --to hf --fill-from " + fused);
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("transposed"));
  EXPECT_FALSE(fs::exists(path("a")));
}

}  // namespace
